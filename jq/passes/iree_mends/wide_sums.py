"""Sums of 16-bit floats are summed in float32, and rounded once, as on XLA.

    dot_general %x : bf16, %w : bf16 -> bf16
    ->
    convert (dot_general %x : bf16, %w : bf16 -> f32) : bf16

A reduction of such numbers, also by windows, gets operands and a body of float32."""

from functools import partial

import numpy as np

from jq.ir import OPS, Op, Program, at, dtype_name, dtype_of, ir, walk
from jq.ir.ops import Dims, Layout
from jq.passes._retype import cast_readers, retype, values_of
from jq.passes.iree_mends.mend import Mend

REDUCTIONS = ("stablehlo.reduce", "stablehlo.reduce_window")
HALVES = ("f16", "bf16")
ROUNDED, BITS = {"stablehlo.add", "stablehlo.multiply"}, "stablehlo.bitcast_convert"


class WidenSums(Mend):
    """Sums of bfloat16 and float16, of products too, are rounded after every term: a convolution of
    4,000 terms may be wrong by a half.
    Trap: traps/test_halves.py::test_sums_of_halves
    Report: iree-org/iree#19347"""

    def finds(self, op: Op) -> bool:
        if not any(map(_half, op.results)):
            return False
        if op.operation.name in REDUCTIONS:
            (body,) = op.regions[0].blocks
            inner = {op.operation.name for op in walk(body)}
            return bool(ROUNDED & inner) and BITS not in inner  # bits have the size of the type
        return bool(Dims.match(op) or Layout.match(op))

    def mend(self, program: Program, found: Op) -> None:
        if found.operation.name in REDUCTIONS:
            _widen_operands(found)
        for result in filter(_half, found.results):
            narrow = partial(OPS.convert, dtype=dtype_of(result))
            retype(result, np.float32)
            with at(found, after=True):
                cast_readers(result, narrow)


def _half(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and dtype_name(dtype_of(value)) in HALVES


def _widen_operands(op: Op) -> None:
    (body,) = op.regions[0].blocks
    for value in filter(_half, list(values_of(body))):
        retype(value, np.float32)
    for reader in (op, *walk(body)):  # a body may read what is made outside of it
        with at(reader):
            for i, x in enumerate(reader.operands):
                reader.operands[i] = OPS.convert(x, np.float32) if _half(x) else x
