"""The body of `RowRanges`."""

import math

from iree.compiler import ir

from jq.kernels.emit.bodies import Operands, emit
from jq.kernels.emit.builder import Builder, Tiles
from jq.kernels.emit.values import Index, Values, vec
from jq.kernels.rowwise.row_body import over_rows, row_body
from jq.kernels.rowwise.row_ranges import RowRanges
from jq.kernels.schedule.rows import Rows, States, over_row


@row_body.register
def row_body_row_ranges(
    kernel: RowRanges, b: Builder, tensors: Values, tiles: Tiles, rows: Rows
) -> None:
    """One row of the first tensor, to the tiles."""
    (row,), (local,) = rows.at, rows.to
    lanes, (source,) = kernel.target.lanes, tensors

    def include(columns: list[Index], valid: int | None, states: States) -> States:
        xs = [_load(b, source, [row, column], lanes, valid) for column in columns]
        return [_with(b, x, state) for x, state in zip(xs, states, strict=True)]

    start = [b.f32(number, lanes) for number in (math.inf, -math.inf, 0.0)]
    first, *others = over_row(b, kernel.k, lanes, include, start)
    how = (b.min, b.max, b.add)
    for other in others:
        first = [f(x, y) for f, x, y in zip(how, first, other, strict=True)]
    *ends, nan = (b.reduce(x, f) for f, x in zip(how, first, strict=True))
    for end, tile in zip(ends, tiles, strict=True):
        b.store(b.add(end, nan), tile, [local], 1)


def _load(b: Builder, source: ir.Value, at: list[Index], lanes: int, valid: int | None) -> ir.Value:
    """A vector of a row; lanes after its end hold its last number."""
    x = b.load(source, at, vec(lanes, "f32"), valid)
    return x if valid is None else b.shuffle(x, x, [min(i, valid - 1) for i in range(lanes)])


def _with(b: Builder, x: ir.Value, state: Values) -> list[ir.Value]:
    """The range after the vector `x`, and NaN where there was one."""
    smallest, largest, nan = state
    return [b.min(x, smallest), b.max(x, largest), b.select_equal(x, x, nan, x)]


@emit.register
def emit_row_ranges(kernel: RowRanges, operands: Operands) -> list[ir.Value]:
    return over_rows(kernel, operands)
