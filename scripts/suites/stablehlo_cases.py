"""StableHLO's own cases of quantized ops: modules that hold their inputs and what must come out.

A case says what it expects by `check.eq` of two values, or by `check.expect_eq_const` and its kin.
Those become results of `@main`, and the reader is asked what it makes of the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import jq
from jq.ir import parse_module
from jq.ir.oracle.interpreter import interpret
from jq.ir.oracle.xla import XlaExecutable
from suites.outcome import REFUSED, RIGHT, WRONG, Outcome

EQUAL = re.compile(
    r"%\w+ = stablehlo\.custom_call @check\.eq\((%\w+), (%\w+)\)[^\n]*: \((.*), (.*)\) -> .*"
)
CONSTANT = re.compile(
    r"\"?check\.expect_(?:almost_)?eq_const\"?\(?\s*(%\w+)(?:\) <\{value = |, )(dense<.*>) : "
    r"(tensor<[^>\n]*>)(?:\}>.*)?"
)
HEAD = re.compile(r"func\.func (?:public )?@\w+\(\)(?: -> [^{]*)? \{")


@dataclass(frozen=True)
class Case:
    """One module of a file."""

    file: str
    index: int
    text: str

    @property
    def name(self) -> str:
        return f"{self.file}#{self.index}" if self.index else self.file


def cases(path: Path) -> Iterator[Case]:
    """The modules of a file that have quantized types."""
    modules = path.read_text(encoding="utf-8").split("// -----")
    for index, text in enumerate(modules):
        if "!quant." in text:
            yield Case(path.name, index, text)


def returning(text: str) -> str:
    """The module with a `@main` that gives what came out, and then what was expected.

    Raises:
        ValueError: it expects nothing in a way that is known.
    """
    got, want, kinds = [], [], []
    for number, line in enumerate(text.splitlines()):
        if found := EQUAL.search(line):
            got, want = [*got, found[2]], [*want, found[1]]
            kinds += [found[3]]
            text = text.replace(line, "")
        elif found := CONSTANT.search(line):
            name = f"%expected{number}"
            text = text.replace(line, f"{name} = stablehlo.constant {found[2]} : {found[3]}")
            got, want, kinds = [*got, found[1]], [*want, name], [*kinds, found[3]]
    if not got:
        raise ValueError("it expects nothing")
    types = ", ".join(kinds * 2)
    text = HEAD.sub(f"func.func @main() -> ({types}) {{", text, count=1)
    return re.sub(r"(func\.)?return\b.*", f"return {', '.join(got + want)} : {types}", text)


def judge(case: Case) -> Outcome:
    """Reads a case, and has XLA and the interpreter compute what was read."""
    try:
        program = jq.trace(parse_module(returning(case.text))).program
    except jq.UserError as error:
        return Outcome(_group(case), case.name, REFUSED, str(error))
    for name, results in (("XLA", XlaExecutable(program)()), ("interpreter", interpret(program))):
        half = len(results) // 2
        for got, want in zip(results[:half], results[half:], strict=True):
            if not np.array_equal(got, want, equal_nan=got.dtype.kind == "f"):
                off = np.abs(np.asarray(got, np.float64) - np.asarray(want, np.float64))
                count, largest = np.count_nonzero(off), off.max()
                reason = f"{name}: {count} of {off.size} differ, by up to {largest:.6g}"
                return Outcome(_group(case), case.name, WRONG, reason)
    return Outcome(_group(case), case.name, RIGHT, "")


def _group(case: Case) -> str:
    return re.split(r"_(?:shape|qi8|dtypes|lhs|\w+_lhs)|\.", case.file)[0]
