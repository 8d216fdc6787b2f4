"""Rewrites atan2 in ops whose results are exact, to the last places of float32.

    %a = atan2 %y, %x
    ->
    %t = min(|%y|, |%x|) / max(|%y|, |%x|),  %r = %t + %t * %t^2 * P(%t^2)
    %a = %r in the octant that the signs and the larger one of the two name

P is the polynomial of degree 8 with the least largest relative error on [0, 1], 3e-9, found by
weighted least squares; the result is within 2 last places. float64 stays as it is.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from jq.ir import Op, dtype_of, ir, shape_of
from jq.ir.arrays import OPS
from jq.passes.iree_mends.mend import Mend

# (atan(t) / t - 1) / t^2 as a polynomial of t^2, from its constant term on.
COEFFICIENTS: tuple[float, ...] = (
    *(-0.3333329908, 0.1999854805, -0.1426423918, 0.1095217265, -0.0840341197),
    *(0.0579569377, -0.03117719375, 0.0109142566, -0.001793543884),
)
# Each as the nearest float32 and what is missing to it.
PI = (3.1415927410125732, -8.742277657347586e-08)
HALF_PI = (1.5707963705062866, -4.371138828673793e-08)


@dataclass(frozen=True)
class PlainArctangents(Mend):
    """`atan2` is off by up to 30 last places of float32.
    Trap: traps/test_powers.py::test_the_compilers_own
    """

    name = "plain-arctangents"

    def finds(self, op: Op) -> bool:
        if op.operation.name != "stablehlo.atan2":
            return False
        return dtype_of(op.results[0]).name in ("float32", "float16", "bfloat16")

    def rewritten(self, op: Op) -> list[ir.Value]:
        y, x = (OPS.convert(v, np.float32) for v in op.operands)
        return [OPS.convert(_arctangent(y, x), dtype_of(op.results[0]))]


def _arctangent(y: ir.Value, x: ir.Value) -> ir.Value:
    full = partial(OPS.full, y)

    def beyond(angle: tuple[float, float], a: ir.Value) -> ir.Value:
        """`angle - a`: the larger parts first, whose difference rounds once."""
        return OPS.add(OPS.sub(full(angle[0]), a), full(angle[1]))

    one, zero = full(1.0), full(0.0)
    ay, ax = OPS.abs(y), OPS.abs(x)
    steep = OPS.compare(ay, ax, "GT")
    small, large = OPS.select(steep, ax, ay), OPS.select(steep, ay, ax)
    # 0 / 0 is 0 here, and infinity / infinity 1: the octants' own angles. NaN gives NaN.
    alike = OPS.select(OPS.equal(large, zero), zero, one)
    ratio = OPS.select(OPS.equal(small, large), alike, OPS.quotient(small, large))
    square = OPS.mul(ratio, ratio)
    series = full(COEFFICIENTS[-1])
    for coefficient in reversed(COEFFICIENTS[:-1]):
        series = OPS.add(OPS.mul(series, square), full(coefficient))
    angle = OPS.add(ratio, OPS.mul(ratio, OPS.mul(square, series)))
    angle = OPS.select(steep, beyond(HALF_PI, angle), angle)
    angle = OPS.select(_is_negative(x), beyond(PI, angle), angle)
    return OPS.select(_is_negative(y), OPS.mul(angle, full(-1.0)), angle)


def _is_negative(x: ir.Value) -> ir.Value:
    """True where a number is negative; -0 is, too."""
    zero = OPS.constant(np.asarray(0, np.int32))
    return OPS.compare(OPS.bitcast(x, np.int32), OPS.broadcast(zero, shape_of(x), []), "LT")
