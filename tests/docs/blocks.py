"""The fenced blocks of a page, and a reader who does what they say, in a folder of their own.

A `python` block runs, in the names that the blocks before it on the page left. A block with
`title="FILE"` is that file. A `sh` block is run line by line; a line that ends in `# exit code 1`
ends so. A `text` block with `title="printed"` is what the `sh` block before it printed, where `...`
stands for anything. A `toml` block without a title is a pipeline or a target. Other `text` blocks,
`mlir`, `c` and `json` ones are read.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperCommand

from jq.cli.app import main
from jq.target.device_table import Device

ROOT = Path(__file__).resolve().parents[2]
READ = {"text", "mlir", "c", "json"}
# Tools of others that the pages call: IREE's, OpenSSH's, Arm's.
TOOLS = {"iree-run-module", "iree-benchmark-module", "iree-dump-parameters", "iree-compile", "vela"}
_FENCE = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    title: str = ""


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page in their order."""
    return [
        Block(
            language,
            re.sub(f"^{indent}", "", text, flags=re.MULTILINE),
            "".join(re.findall(r'title="([^"]*)"', more)),
        )
        for indent, language, more, text in _FENCE.findall(page.read_text(encoding="utf-8"))
    ]


@dataclass
class Reader:
    """Somebody who follows a page in the working directory, in this process."""

    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    environment: dict[str, str] = field(default_factory=dict)
    quiet: bool = True  # commands say no more than they have to, and take less time
    printed: str = ""

    def follow(self, block: Block) -> None:
        if block.title == "printed":
            agrees(block.text, self.printed)
        elif block.title:
            Path(block.title).write_text(block.text)
        elif block.language == "python":
            exec(compile(block.text, "<block>", "exec"), self.names)
        elif block.language == "sh":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                self.lines(block.text)
            self.printed = printed.getvalue()
        elif block.language == "toml":
            settings(block.text)
        else:
            assert block.language in READ, f"a block of {block.language!r}"

    def lines(self, text: str) -> None:
        """The commands of a block."""
        for line in text.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                ends = re.search(r"# exit code (\d)", line)
                self.among(words, int(ends[1]) if ends else 0)

    def among(self, words: list[str], code: int) -> None:
        """One command with the variables that the page exports, or sets in front of it."""
        match words:
            case ["export", variable]:
                name, _, value = variable.partition("=")
                self.environment[name] = value
                return
            case [variable, *command] if re.match(r"[A-Z_]+=", variable):
                name, _, value = variable.partition("=")
                own = {name: value}
            case command:
                own = {}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (self.environment | own).items():
                patch.setenv(name, value)
            self.enter(command, code)

    def enter(self, words: list[str], code: int) -> None:
        """One command."""
        match words:
            case ["jaxq", *arguments]:
                quiet = self.quiet and "--json" not in arguments
                found = main([*arguments, "-q"] if quiet else [*arguments])
                assert found == code, words
            case ["python", "-c", text]:
                exec(text, {})
            case ["python", script, *arguments]:
                run_path(script, arguments)
            case [script, *arguments] if script.removeprefix("./").startswith("scripts/"):
                understood(ROOT / script, arguments)
            case [tool, *_] if tool in TOOLS:
                call([str(Path(sys.executable).parent / tool), *words[1:]])
            case ["ssh-keygen", *_]:
                call([*words, "-q", "-N", ""])
            case ["pip", "install", *what]:
                installs(what)
            case ["mkdir" | "cp", *_]:
                call([os.path.expanduser(word) for word in words])
            case [".", _] | ["zensical", "serve"]:
                pass
            case _:
                raise AssertionError(f"nobody enters {words}")


def agrees(shown: str, printed: str) -> None:
    """A page shows lines that a command printed: the same words, and the digits that it shows."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    whole, part = f"| {printed} |", f"... {shown} ..."
    found = doctest.OutputChecker().check_output(part, whole, flags)
    assert found, f"shown:\n{shown}\nprinted:\n{printed}"


def call(words: list[str]) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=120)


def run_path(script: str, arguments: list[str]) -> None:
    """A script of the page in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [script, *arguments])
        patch.setattr(sys, "path", [str(Path(script).resolve().parent), *sys.path])
        with contextlib.redirect_stdout(io.StringIO()):
            end = None
            try:
                runpy.run_path(script, run_name="__main__")
            except SystemExit as raised:
                end = raised.code
        assert not end, script


class Understood(BaseException):
    """A script knows its arguments."""


def understood(script: Path, arguments: list[str]) -> None:
    """A script of ours that runs for long: it is there, and takes these arguments."""
    assert script.is_file(), script
    if script.suffix != ".py":
        return
    parse = argparse.ArgumentParser.parse_args

    def stop(self: argparse.ArgumentParser, *given: Any, **more: Any) -> None:
        parse(self, *given, **more)
        raise Understood

    def stop_command(*_: Any) -> None:
        raise Understood

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(script), *arguments])
        patch.setattr(sys, "path", [str(script.parent), *sys.path])
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        patch.setattr(TyperCommand, "invoke", stop_command)
        with pytest.raises(Understood):
            runpy.run_path(str(script), run_name="__main__")


def installs(what: list[str]) -> None:
    """The packages installed are those that `pyproject.toml` offers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in what:
        ours = re.fullmatch(r"(?:jaxq|\.)(?:\[(.*)\])?", name)
        extras = ours[1].split(",") if ours and ours[1] else []
        assert set(extras) <= set(project["optional-dependencies"]), name


def settings(text: str) -> None:
    """A part of a pipeline file or of a target file."""
    from jq.passes.pipeline import load_pipeline

    found = tomllib.loads(text)
    if "device" in found:
        Device.model_validate(found["device"])
    else:
        Path("block.toml").write_text(text)
        load_pipeline("block.toml")
