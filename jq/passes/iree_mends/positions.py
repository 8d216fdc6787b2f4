"""Slices, gathers and updates at positions that are found at run time."""

import numpy as np

from jq.formats.arrays import clip
from jq.ir import OPS, Op, Program, dtype_of, evaluate, integers, ir, maker, shape_of, stablehlo
from jq.ir.build import picked
from jq.ir.index_range import Element, index_range
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import Mend
from jq.passes.rewrite import Rewrite

# Indices of a gather are clamped into the operand, as StableHLO defines.
#
# gather %table, %i  ->  gather %table, clamp(0, %i, size - slice)
#
# Not where the ops that make the indices prove that they are inside (`jq.ir.index_range`).
#
# Positions of slices, which IREE clamps, have a type that holds the largest one:
#
# dynamic_slice %x, %i : ui32  ->  dynamic_slice %x, convert %i : i64
SLICE, UPDATE = "stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"
POSITIONS = {SLICE: 1, UPDATE: 2}  # where they begin


class ClampIndices(Mend):
    """Indices of a gather are not clamped: memory out of bounds is read.
    Trap: traps/test_values.py::test_constant_indices_out_of_range
    Report: iree-org/iree#24881

    Start indices of slices are clamped in their own type and as signed numbers: 197 wraps in i8,
    and 4e9 of ui32 is negative.
    Trap: traps/test_values.py::test_a_narrow_position"""

    def finds(self, op: Op) -> bool:
        if (first := POSITIONS.get(op.operation.name)) is None:
            return _may_be_outside(op)
        positions = list(op.operands)[first:]  # of a number there are none
        return bool(positions) and dtype_of(positions[0]).name not in ("int32", "int64")

    def rewritten(self, op: Op) -> None:
        if (first := POSITIONS.get(op.operation.name)) is None:
            op.operands[1] = _clamped(op)
            return
        for i, position in enumerate(list(op.operands)[first:], first):
            kind = np.int32 if dtype_of(position).itemsize < 4 else np.int64
            op.operands[i] = OPS.convert(position, kind)


def _may_be_outside(op: Op) -> bool:
    """True if `op` is a gather that nothing keeps inside its operand."""
    if op.operation.name != "stablehlo.gather":
        return False
    d = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    table, index = op.operands[0], op.operands[1]
    whole = d.index_vector_dim < len(shape_of(index))
    for k, axis in enumerate(d.start_index_map):
        low, high = index_range(index, Element(d.index_vector_dim, k) if whole else None)
        if low < 0 or high > shape_of(table)[axis] - integers(op, "slice_sizes")[axis]:
            return True
    return False


def _clamped(op: Op) -> ir.Value:
    d = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    table, index = op.operands[0], op.operands[1]
    if dtype_of(index).kind == "u":  # all of them but half of ui64's, which no tensor reaches
        index = OPS.convert(index, np.int64)
    shape, sizes, dtype = shape_of(table), integers(op, "slice_sizes"), dtype_of(index)
    largest = np.array([shape[a] - sizes[a] for a in d.start_index_map], np.int64)
    largest = np.minimum(largest, np.iinfo(dtype).max).astype(dtype)
    whole = shape_of(index)
    single = d.index_vector_dim == len(whole)  # each index is a number
    high = OPS.constant(largest.reshape(()) if single else largest)
    return clip(OPS, index, 0, OPS.broadcast(high, whole, [] if single else [d.index_vector_dim]))


# Rows from a position on that is found at run time are gathered.
#
#     dynamic_slice %table, %position, 0, sizes = [4, 128]
#     ->
#     gather %table, clamp(0, %position, n - 4) + [0, 1, 2, 3]
#
# Fires on inputs and weights, and on single rows of anything, outside of loops and branches.
class GatherSlices(Rewrite, Mend):
    """Slow: where a slice lies at a position that is found at run time, the host waits for it, and
    records every command of the call anew.
    No trap: slow, not wrong"""

    tidies = False

    def replacement(self, program: Program, op: Op, cx: PassContext) -> list[ir.Value] | None:
        outside = op.operation.block == program.body and op.operation.name == SLICE
        if not outside or (axis := along(program, op)) is None:
            return None
        count = shape_of(op.results[0])[axis]
        rows = maker(op.operands[0]) is None or count == 1
        return [_gathered(op, axis, count)] if rows else None


def _gathered(op: Op, axis: int, count: int) -> ir.Value:
    table, position = op.operands[0], op.operands[1 + axis]
    first = OPS.broadcast(held(position, shape_of(table)[axis] - count), [count, 1], ())
    index = OPS.add(first, OPS.constant(np.arange(count, dtype=np.int32)[:, None]))
    return picked(table, index, axis)


def along(program: Program, op: Op) -> int | None:
    """The only axis whose position is found at run time, if the part is whole along all others."""
    part = op.results[0] if op.operation.name == SLICE else op.operands[1]
    starts = list(op.operands)[POSITIONS[op.operation.name] :]
    found = [a for a, start in enumerate(starts) if evaluate(program, start) is None]
    pairs = zip(shape_of(op.operands[0]), shape_of(part), strict=True)
    cut = [a for a, (size, own) in enumerate(pairs) if size != own]
    fits = len(found) == 1 and not set(cut) - set(found) and 0 not in shape_of(part)
    return found[0] if fits else None


def held(position: ir.Value, most: int) -> ir.Value:
    """i32, held to 0 .. most."""
    most = min(most, np.iinfo(dtype_of(position)).max)
    return OPS.convert(clip(OPS, position, 0, most), np.int32)
