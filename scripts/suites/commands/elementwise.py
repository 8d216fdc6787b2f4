"""The errors of elementwise functions over all exponents, as the table of
docs/reference/elementwise.md.

    scripts/suite.py elementwise > docs/reference/elementwise.md     # writes the page anew
    scripts/suite.py elementwise --each 2 --only sin --only cbrt     # fewer numbers, and functions

Exit code 1 where a number is off by more than the page says. Needs the extra `test`.
"""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any

import numpy as np
import typer

import jq
from suites import elementwise
from suites.elementwise import BINARY, DTYPES, FORMULAS, LIMIT, ROUNDINGS, UNARY, Error

HEAD = f"""# Errors of elementwise functions

The largest error of each function in a program of the pipeline `float`, in units in the last
place of the type, against its value in float64. Beside it, in brackets, the error of XLA. Inputs
have all exponents and both signs, with infinity and NaN: every number of the types of 16 bits, and
drawn ones of float32. Numbers below the smallest normal one count as zero, but for float16: XLA and
IREE flush them. Written by `scripts/suite.py elementwise`; do not edit.

The functions of the first two tables are off by at most {LIMIT:g} last places. Those of the third
are formulas of JAX, or of StableHLO's extension CHLO, whose steps are rounded in the model's type.
Their own error is large next to their zeros, and where a step overflows or vanishes: a number is
off by at most {ROUNDINGS:g} last places more than {LIMIT:g} times the largest error of XLA at
numbers of its exponent, and `digamma` below 1/2, where its two terms cancel, by
{ROUNDINGS:g} last places of these terms more. "-" says that NaN, an infinity or zero stands where
float64 has a number, in both.
"""


def _compiled(function: Any, inputs: tuple[np.ndarray, ...]) -> Any:
    return jq.compile(jq.Model(lambda _, *x: function(*x), {}, inputs), pipeline="float")


def _cell(error: Error) -> str:
    return " ".join(("{}", "({})")).format(*map(_places, (error.ours, error.theirs)))


def _places(error: float) -> str:
    if math.isinf(error) or error > 1e6:
        return "-"
    return f"{error:.1f}" if error < 100 else f"{error:.2g}"


def table(title: str, names: Any, found: dict[str, dict[str, Error]]) -> str:
    lines = [
        f"## {title}",
        "",
        f"| function | {' | '.join(found)} |",
        "|---" * (len(found) + 1) + "|",
    ]
    lines += [
        f"| `{name}` | {' | '.join(_cell(each[name]) for each in found.values())} |"
        for name in names
    ]
    return "\n".join(lines) + "\n"


def main(
    each: Annotated[int, typer.Option(help="Drawn numbers of each exponent of float32.")] = 30,
    only: Annotated[list[str] | None, typer.Option(help="Functions; all by default.")] = None,
) -> None:
    print(HEAD)
    wrong = False
    titles = {"One operand": UNARY, "Two operands": BINARY, "Formulas": FORMULAS}
    for title, group in titles.items():
        chosen = {name: f for name, f in group.items() if not only or name in only}
        if not chosen:
            continue
        found = {}
        for name, dtype in DTYPES.items():
            x = elementwise.numbers(dtype, each)
            inputs = elementwise.pairs(dtype, each) if group is BINARY else (x,)
            found[name] = elementwise.errors(_compiled, chosen, inputs)
            for function, error in found[name].items():
                if error.wrong:
                    wrong = True
                    print(f"{name} {function}: {error}", file=sys.stderr)
        print(table(title, chosen, found))
    if wrong:
        raise typer.Exit(1)
