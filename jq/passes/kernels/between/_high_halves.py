"""64-bit products that are rounded at 31 bits, as one line of a kernel over rows."""

from collections.abc import Sequence
from dataclasses import replace

from jq.ir.values import reached
from jq.kernels import Line
from jq.kernels.rowwise.row_program import MULTIPLY_HIGH, RESULT


def with_high_halves(lines: Sequence[Line]) -> tuple[Line, ...]:
    """The lines with `multiply_high` in place of 64-bit products that are rounded at 31 bits, and
    without those that nothing reads then."""
    made = list(lines)
    for i, line in enumerate(lines):
        factors = _factors(lines, i)
        made[i] = Line(MULTIPLY_HIGH, factors, "i32") if factors else line
    results = [i for i, line in enumerate(made) if line.op == RESULT]
    kept = sorted(reached([*results, len(made) - 1], lambda i: made[i].of))
    place = {old: new for new, old in enumerate(kept)}
    return tuple(replace(made[i], of=tuple(place[j] for j in made[i].of)) for i in kept)


def _factors(lines: Sequence[Line], i: int) -> tuple[int, ...] | None:
    """Numbers of the two i32 lines, a constant last, whose product line i is the high half of."""
    of: Sequence[int] = [i]
    steps = ("convert", "i32", None), ("shift_right_arithmetic", "i64", 31), ("add", "i64", 1 << 30)
    for step in (*steps, ("multiply", "i64", None)):
        of = _operands(lines, of[0], *step)
        if not of:
            return None
    factors = [_operands(lines, j, "convert", "i64") for j in of]
    if not all(f and lines[f[0]].element == "i32" for f in factors):
        return None
    return tuple(sorted((f[0] for f in factors), key=lambda j: lines[j].op == "constant"))


def _operands(
    lines: Sequence[Line], i: int, op: str, element: str, constant: int | None = None
) -> tuple[int, ...]:
    """Operands of a line, if it is such an op, and the last of them this constant; else none."""
    line = lines[i]
    if (line.op, line.element) != (op, element):
        return ()
    other = Line("constant", (), element, constant or 0)
    return line.of if constant is None or lines[line.of[-1]] == other else ()
