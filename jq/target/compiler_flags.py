"""Flags of IREE's compiler: those that a file may bring, and the form of any.

A flag is power: some start programs (`--iree-llvmcpu-embedded-linker-path`, through a shell),
others write files or read them. So a target file has the flags of `compiler_flags.txt`, which
choose code and nothing else; the person at the command line may give any other with `--iree-flag`.
No flag of either kind has characters that mean something to a shell."""

import re
from collections.abc import Sequence
from pathlib import Path

from jq.base.errors import UserError

_KNOWN = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split()
FROM_FILES = frozenset(f"--iree-{name}" for name in _KNOWN)

# No spaces, quotes, `;`, `|`, `&`, `$`, backquotes, `<`, `>`, brackets, `*`, `?`, `#`, `~`, `!`.
_FLAG = re.compile(r"--[A-Za-z][A-Za-z0-9_-]*(=[A-Za-z0-9_./,:+=@%^-]*)?")


def check_file_flags(flags: tuple[str, ...]) -> tuple[str, ...]:
    """The flags; a `ValueError` where there is one that a file may not bring."""
    for flag in flags:
        if not _FLAG.fullmatch(flag):
            raise ValueError(f"{flag!r} is no flag: write --name=value in plain characters")
        name, _, value = flag.partition("=")
        if name not in FROM_FILES or "/" in value:
            raise ValueError(
                f"{flag!r} is no flag that a file may bring, for it can start programs or write"
                f" files: give it on the command line, --iree-flag={flag}"
            )
    return flags


def check_user_flags(flags: Sequence[str]) -> tuple[str, ...]:
    """The flags that a person gave, any of the compiler's, in characters that no shell reads."""
    for flag in flags:
        if not _FLAG.fullmatch(flag):
            hint = "write --iree-flag=--name=value, in letters, digits and ./,:+=@%^_-"
            raise UserError(f"{flag!r} is no flag of IREE's compiler", hint=hint)
    return tuple(flags)


def combined(first: Sequence[str], then: Sequence[str]) -> tuple[str, ...]:
    """Both, where a flag of the second takes the place of those of its name in the first: the
    compiler takes most flags once."""
    taken = {flag.partition("=")[0] for flag in then}
    return (*(flag for flag in first if flag.partition("=")[0] not in taken), *then)
