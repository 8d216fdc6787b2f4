"""Many windows: a scatter of rows of a matrix."""

from math import prod

import numpy as np

from jq.ir import Op, dtype_of, ir, shape_of, stablehlo
from jq.ir.arrays import StableHloOps
from jq.ir.index_range import Element, index_range
from jq.passes.iree_mends.scatters import _scatter
from jq.passes.iree_mends.scatters._function import neutral, take_body, zero_of
from jq.passes.iree_mends.scatters._scatter import Scatter

OPS = StableHloOps()


def scatter_rows(op: Op, s: Scatter, operand: ir.Value) -> ir.Value:
    lead = len(s.shape)
    while lead and s.windows[lead - 1] == s.shape[lead - 1]:
        lead -= 1
    count, each, width = s.count, prod(s.windows[:lead]), prod(s.shape[lead:])
    rows = prod(s.shape[:lead])
    index = _row_numbers(s, lead)
    matrix = OPS.reshape(operand, (rows, width))
    update = OPS.reshape(s.updates[0], (count * each, width))
    inside = s.inside and _repeated(OPS.reshape(s.inside, (count,)), each)
    if inside is not None:
        same = neutral(op, operand)
        if same is not None:
            wide = OPS.broadcast(inside, shape_of(update), [0])
            unchanged = stablehlo.broadcast_in_dim(update.type, same, [])
            update = OPS.select(wide, update, unchanged)
        else:
            beyond = OPS.broadcast(
                OPS.constant(np.array(rows, dtype_of(index))), shape_of(index), []
            )
            index = OPS.select(inside, index, beyond)
            matrix = OPS.pad(matrix, zero_of(operand), [0, 0], [1, 0])
    index = _within(OPS.reshape(index, (count * each, 1)), shape_of(matrix)[0] - 1)
    result = _canonical(op, matrix, index, update, inside is None)
    if shape_of(result)[0] != rows:
        result = OPS.slice(result, [0, 0], [rows, width])
    return OPS.reshape(result, s.shape)


def _row_numbers(s: Scatter, lead: int) -> ir.Value:
    """The row that each row of each window is written to, [count * rows of a window]."""
    kind = np.dtype(np.int32 if prod(s.shape) < np.iinfo(np.int32).max else np.int64)
    within = s.windows[:lead]
    total = OPS.broadcast(OPS.constant(np.zeros((), kind)), (*s.places, *within), [])
    rank = len(s.places)
    for axis in range(lead):
        stride = prod(s.shape[axis + 1 : lead])
        parts = []
        if axis in s.begins:
            parts.append((s.begins[axis], list(range(rank))))
        if within[axis] > 1:
            parts.append((_scatter.iota((within[axis],), 0, kind), [rank + axis]))
        for part, dims in parts:
            by = OPS.broadcast(OPS.constant(np.array(stride, kind)), shape_of(part), [])
            step = OPS.broadcast(OPS.mul(part, by), shape_of(total), dims)
            total = OPS.add(total, step)
    return OPS.reshape(total, (prod(shape_of(total)),))


def _within(index: ir.Value, last: int) -> ir.Value:
    """Clamped, where the ops that add it up do not prove that it is inside."""
    low, high = index_range(index, Element(1, 0))
    if low >= 0 and high <= last:
        return index
    least, most = (
        OPS.broadcast(OPS.constant(np.array(v, dtype_of(index))), shape_of(index), [])
        for v in (0, last)
    )
    return OPS.minimum(OPS.maximum(index, least), most)


def _repeated(x: ir.Value, times: int) -> ir.Value:
    wide = OPS.broadcast(x, (*shape_of(x), times), [0])
    return OPS.reshape(wide, (prod(shape_of(wide)),))


def _canonical(op: Op, x: ir.Value, i: ir.Value, u: ir.Value, proven: bool) -> ir.Value:
    """The same scatter, of rows."""
    dims = stablehlo.ScatterDimensionNumbers.get(
        update_window_dims=[1],
        inserted_window_dims=[0],
        input_batching_dims=[],
        scatter_indices_batching_dims=[],
        scattered_dims_to_operand_dims=[0],
        index_vector_dim=1,
    )
    said = op.operation.attributes
    # Rows that take the place of those outside may well occur twice.
    unique = proven and "unique_indices" in said and ir.BoolAttr(said["unique_indices"]).value
    made = ir.Operation.create(
        "stablehlo.scatter",
        results=[x.type],
        operands=[x, i, u],
        attributes={
            "scatter_dimension_numbers": dims,
            "indices_are_sorted": ir.BoolAttr.get(False),
            "unique_indices": ir.BoolAttr.get(unique),
        },
        regions=1,
    )
    take_body(op, made)
    return made.result
