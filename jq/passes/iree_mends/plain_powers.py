"""Powers of any base, to the last places of float32.

    power %x, %y
    ->
    %p = 2^(%y log2 |%x|), in float64 (`functions/_powers.py`)
    %p, where %x is positive or %y is even;  -%p, where %y is odd;  NaN, where it is no whole number

Numbers of 16 bits are computed in float32, as on XLA. Complex powers are
computed in polar coordinates (`_complex_power`). float64 stays as it is.
"""

from dataclasses import dataclass

import numpy as np

from jq.ir import Op, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.passes.iree_mends._complex_power import complex_power
from jq.passes.iree_mends.functions._powers import power
from jq.passes.iree_mends.mend import Mend

OPS = StableHloOps()
FLOATS = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class PlainPowers(Mend):
    """A power of a negative number is NaN, whatever the exponent.
    Trap: traps/test_powers.py::test_powers_of_negative_numbers
    Report: iree-org/iree#19996

    Powers are off by up to 90 last places of float32.
    Trap: traps/test_functions.py::test_the_compilers_own_powers

    Complex powers of 0 are NaN, and others are off by 3e-6 of their value.
    Trap: traps/test_refused.py::test_complex_powers
    """

    name = "plain-powers"

    def finds(self, op: Op) -> bool:
        if op.operation.name != "stablehlo.power":
            return False
        return dtype_of(op.operation.results[0]).name in (*FLOATS, "complex64")

    def rewritten(self, op: Op) -> list[ir.Value]:
        return [_power(op)]


def _power(op: Op) -> ir.Value:
    dtype = dtype_of(op.operation.results[0])
    if dtype.kind == "c":
        return complex_power(*op.operation.operands)
    x, y = (OPS.convert(v, np.float32) for v in op.operation.operands)
    return OPS.convert(_signed(power(OPS.abs(x), y), x, y), dtype)


def _signed(result: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
    """The power of x, from that of |x|; -0 counts as negative."""
    shape = shape_of(x)

    def full(value: float) -> ir.Value:
        return OPS.broadcast(OPS.constant(np.asarray(value, np.float32)), shape, [])

    def whole(v: ir.Value) -> ir.Value:  # infinity, and all from 2^23 on, are
        return OPS.equal(OPS.round_even(v), v)

    zero = OPS.constant(np.asarray(0, np.int32))
    negative = OPS.compare(OPS.bitcast(x, np.int32), OPS.broadcast(zero, shape, []), "LT")
    one = full(1.0)  # of 1 by anything, and of anything by 0
    result = OPS.select(OPS.equal(OPS.abs(x), one), one, result)
    result = OPS.select(OPS.equal(y, full(0.0)), one, result)
    odd = OPS.select(whole(OPS.mul(y, full(0.5))), result, OPS.mul(result, full(-1.0)))
    # Zero and infinity have powers of every exponent, and what is 0 has no last place to lose.
    special = OPS.equal(OPS.abs(x), OPS.add(OPS.abs(x), OPS.abs(x)))
    broken = OPS.select(special, result, full(np.nan))
    return OPS.select(negative, OPS.select(whole(y), odd, broken), result)
