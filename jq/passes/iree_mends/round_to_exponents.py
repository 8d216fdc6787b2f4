"""Floats and exponents of 8 bits (`f8E8M0FNU`) become each other by way of the bits of float32.

convert %x : f32 -> f8E8M0FNU
->
%code = (bits(%x) + 0x400000) >> 23             half a step up; infinity has the code of NaN
bitcast (select (%x is a normal number) %code, ...) : f8E8M0FNU
"""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from jq.ir import Op, dtype_of, ir, shape_of, stablehlo, tensor_type
from jq.ir.arrays import StableHloOps
from jq.passes.iree_mends.mend import Mend

OPS = StableHloOps()
EXPONENTS = np.dtype(ml_dtypes.float8_e8m0fnu)
NAN = 0xFF


@dataclass(frozen=True)
class RoundToExponents(Mend):
    """Conversions to `float8_e8m0fnu` (scales of blocks, computed at run time) are rounded down
    instead of to the nearest power of two, zero and negative numbers become numbers, and the
    smallest exponent is read as 0.
    Trap: traps/test_exponents.py::test_floats_to_exponents_without_the_pass
    Trap: traps/test_exponents.py::test_the_smallest_exponent_without_the_pass
    """

    name = "round-to-exponents"

    def finds(self, op: Op) -> bool:
        if op.operation.name != "stablehlo.convert":
            return False
        (operand,), (result,) = op.operation.operands, op.operation.results
        return (dtype_of(operand) == EXPONENTS) != (dtype_of(result) == EXPONENTS)

    def rewritten(self, op: Op) -> list[ir.Value]:
        (x,), kind = op.operation.operands, dtype_of(op.operation.results[0])
        if kind == EXPONENTS:
            return [_rounded(OPS.convert(x, np.float32))]
        return [OPS.convert(_read(x), kind)]


def _full(value: int, like: ir.Value) -> ir.Value:
    return OPS.broadcast(OPS.constant(np.asarray(value, np.int32)), shape_of(like), [])


def _rounded(x: ir.Value) -> ir.Value:
    """The power of two nearest to a float32, the larger one of two; NaN for what has none."""
    bits = OPS.bitcast(x, np.int32)

    def choose(bound: int, direction: str, then: ir.Value, other: ir.Value) -> ir.Value:
        return OPS.select(OPS.compare(bits, _full(bound, x), direction), then, other)

    code = OPS.shift_right(OPS.add(bits, _full(0x400000, x)), _full(23, x))
    # What is not normal becomes 2**-126 (code 1) if it is larger than 2**-127 (code 0), as on XLA.
    code = choose(0x800000, "LT", _full(1, x), code)
    code = choose(0x400000, "LE", _full(0, x), code)
    code = choose(0x7F400000, "GE", _full(NAN, x), code)
    code = choose(0, "LE", _full(NAN, x), code)
    return stablehlo.bitcast_convert(
        tensor_type(shape_of(x), EXPONENTS), OPS.convert(code, np.int8)
    )


def _read(x: ir.Value) -> ir.Value:
    """The float32 that an exponent stands for."""
    signed = stablehlo.bitcast_convert(tensor_type(shape_of(x), np.dtype(np.int8)), x)
    code = OPS.bit_and(OPS.convert(signed, np.int32), _full(0xFF, x))
    bits = OPS.shift_left(code, _full(23, x))
    bits = OPS.select(OPS.equal(code, _full(0, x)), _full(0x400000, x), bits)
    bits = OPS.select(OPS.equal(code, _full(NAN, x)), _full(0x7FC00000, x), bits)
    return OPS.bitcast(bits, np.float32)
