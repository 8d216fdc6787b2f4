"""Mends: rewrites that keep from IREE's compiler what it gets wrong. Each tells its defects once.

The page of defects, the reasons in the order of passes and the traps (tests that tell when a defect
is gone) are read from here."""

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jq.ir import Op, Program, at, barrier, ir, maker, replace, users
from jq.passes.base import Pass, PassContext, known_passes

BARRIER = "stablehlo.optimization_barrier"
Read = tuple[Op, int]  # an op and the number of one of its operands


@dataclass(frozen=True)
class Defect:
    """One thing that a tool of others gets wrong.

    Attributes:
        what: what happens, and with which programs: a row of the page.
        traps: tests below `tests/` that fail as soon as the tool is right (`file.py::test`).
        untrapped: why no test tells when it is gone, where none does.
        report: where it is reported, `owner/name#number`; empty where no report was found, and
            `docs/internals/iree-reports.md` has the text of one.
        seen: the tool, and the versions of it that were seen to be wrong.
        by: the pass or the file that works around it.
        until: what removes the workaround, if that is not a tool for which all traps pass."""

    what: str
    traps: tuple[str, ...] = ()
    untrapped: str = ""
    report: str = ""
    seen: str = "IREE 3.13"
    by: str = ""
    until: str = ""


FIELDS = {"No trap": "untrapped", "Report": "report", "Seen": "seen", "By": "by", "Until": "until"}


def told(text: str, by: str = "") -> Iterator[Defect]:
    """The defects that a text tells: each a paragraph, with lines `Trap: ...` and `FIELDS`."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        keys = "|".join(["Trap", *FIELDS])
        what, *said = re.split(rf"\n\s*({keys}): ", paragraph)
        pairs = [(k, " ".join(v.split())) for k, v in zip(said[::2], said[1::2], strict=True)]
        given = {FIELDS[key]: value for key, value in pairs if key in FIELDS}
        traps = tuple(value for key, value in pairs if key == "Trap")
        yield Defect(" ".join(what.split()).rstrip("."), traps, **{"by": by, **given})


class Mend(Pass, shared=True):
    """A pass that is there because of the defects that its docstring tells (see `told`).

    It goes when all their traps are mended. Most mends find ops one by one, and rewrite each:
    `finds` and `rewritten`. Others have `left` and `mend`, or a `run`."""

    @classmethod
    def defects(cls) -> tuple[Defect, ...]:
        return tuple(told(inspect.getdoc(cls) or "", cls.name))

    def finds(self, op: Op) -> Any:
        """True if an op is one that the compiler gets wrong; true of none that is rewritten."""
        return False

    def rewritten(self, op: Op) -> Sequence[ir.Value] | None:
        """The values of the op's results, built in front of it; None where it was edited."""
        raise NotImplementedError

    def left(self, program: Program) -> Sequence[object]:
        """The ops that the compiler would get wrong: none, once the pass has run."""
        return [op for op in program.walk_all() if self.finds(op)]

    def mend(self, program: Program, found: Any) -> None:
        """Rewrites one of those."""
        with at(found):
            if (values := self.rewritten(found)) is not None:
                replace(found, values)

    def run(self, program: Program, cx: PassContext) -> bool:
        found = self.left(program)
        for one in found:
            self.mend(program, one)
        return bool(found)


def defects() -> Iterator[Defect]:
    """All that are known: those of passes by the passes' names, and those of `elsewhere.txt`."""
    for _, kind in sorted(known_passes().items()):
        if issubclass(kind, Mend):
            yield from kind.defects()
    yield from told(Path(__file__).with_name("elsewhere.txt").read_text(encoding="utf-8"))


class Shield(Mend, shared=True):
    """A mend that computes values by themselves: each gets a barrier, and nothing else changes.

    It has `values`, or a `finds` that gives those of one op."""

    def values(self, program: Program) -> Iterable[ir.Value | Read]:
        """The values that are shielded from all who read them, and those from one reader alone."""
        return (value for op in program.walk_all() for value in self.finds(op))

    def left(self, program: Program) -> Sequence[ir.Value | Read]:
        return [value for value in dict.fromkeys(self.values(program)) if not _is_shielded(value)]

    def mend(self, program: Program, found: ir.Value | Read) -> None:
        if isinstance(found, tuple):
            op, i = found
            with at(op):
                op.operands[i] = barrier(op.operands[i])
        else:
            with at(found.owner, after=True):
                hidden = barrier(found)
            found.replace_all_uses_except(hidden, hidden.owner.operation)


def _is_shielded(value: ir.Value | Read) -> bool:
    if isinstance(value, tuple):
        op, i = value
        return maker(op.operands[i], BARRIER) is not None
    return all(user.operation.name == BARRIER for user in users(value))
