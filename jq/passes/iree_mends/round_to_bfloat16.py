"""Integers become bfloat16 by way of float32, as on XLA, and are rounded in integers.

    convert %x : i32 -> bf16
    ->
    %u = bitcast (convert %x : f32) : i32
    bitcast (convert ((%u + 0x7fff + (%u >> 16 & 1)) >> 16) : i16) : bf16

IREE fails likewise where the two conversions are written one after the other.
"""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from jq.ir import Op, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.build import constant_of
from jq.ir.constants import dense_array
from jq.ir.values import maker
from jq.passes.iree_mends.mend import Mend

OPS = StableHloOps()
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class RoundToBfloat16(Mend):
    """Conversions of integers to bfloat16 on a processor without AVX512-BF16 call a function of the
    system's library, which a module has not.
    Trap: traps/test_refused.py::test_integers_to_bfloat16
    """

    name = "round-to-bfloat16"

    def finds(self, op: Op) -> bool:
        name = op.operation.name
        if name != "stablehlo.convert" or dtype_of(op.operation.results[0]) != BFLOAT16:
            return False
        return dtype_of(op.operation.operands[0]).kind in "iub"

    def rewritten(self, op: Op) -> list[ir.Value]:
        known = _constant(op)
        wide = OPS.convert(op.operation.operands[0], np.float32)
        return [_rounded(wide) if known is None else constant_of(known)]


def _constant(op: Op) -> np.ndarray | None:
    """The result for a constant: IREE fails on what would compute it before padding (`jnp.pad`)."""
    operand = op.operation.operands[0]
    value = dense_array(operand) if maker(operand, "stablehlo.constant") else None
    return None if value is None else value.astype(np.float32).astype(BFLOAT16)


def _rounded(x: ir.Value) -> ir.Value:
    """The bfloat16 nearest to a finite float32, ties to even."""
    bits, shape = OPS.bitcast(x, np.int32), shape_of(x)

    def full(value: int) -> ir.Value:
        return OPS.broadcast(OPS.constant(np.asarray(value, np.int32)), shape, [])

    odd = OPS.bit_and(OPS.shift_right(bits, full(16)), full(1))
    up = OPS.add(OPS.add(bits, full(0x7FFF)), odd)
    return OPS.bitcast(OPS.convert(OPS.shift_right(up, full(16)), np.int16), BFLOAT16)
