"""Work on some rows of a matrix, by itself or after a product that made them."""

import math
from functools import singledispatch

from iree.compiler import ir

from jq.base.errors import InternalError
from jq.kernels.emit import Builder, Index, Indices, Tiles, Values, vec
from jq.kernels.emit.dispatches import Operands, Output, dispatch, emit
from jq.kernels.machine.tiling import row_block
from jq.kernels.rowwise.description import QuantizeRows, RowKernel, RowRanges
from jq.kernels.rowwise.quantizer import RowQuantizer
from jq.kernels.rowwise.update_rows import UpdateRows
from jq.kernels.schedule.rows import Rows, States, over_row, row_dispatch


@singledispatch
def row_body(kernel: object, b: Builder, tensors: Values, tiles: Tiles, rows: Rows) -> None:
    """Some rows of the first tensor, to the tiles."""
    raise InternalError(f"{kernel} has no rows")


@emit.register
def emit_rows(kernel: RowKernel, operands: Operands) -> list[ir.Value]:
    """A dispatch over all rows of a matrix."""

    def body(b: Builder, tensors: Values, tiles: Tiles, rows: Rows) -> None:
        row_body(kernel, b, tensors, tiles, rows)

    block = row_block(kernel.m, kernel.k)
    together = min(block, kernel.together)
    return row_dispatch(operands, kernel.results, body, block, together, kernel.sequences)


@row_body.register
def row_body_quantize_rows(
    kernel: QuantizeRows, b: Builder, tensors: Values, tiles: Tiles, rows: Rows
) -> None:
    """One row of the first tensor, to the tiles."""
    (row,), (local,) = rows.at, rows.to
    lanes = kernel.target.lanes
    quantizer = RowQuantizer(b, kernel.scheme, lanes)
    source, *rest = tensors
    factors = rest.pop(0) if kernel.factors else None

    def load(column: Index, valid: int | None) -> ir.Value:
        x = b.load(source, [row, column], vec(lanes, "f32"), valid)
        if factors is None:
            return x
        return b.rounded(b.mul(x, b.load(factors, [column], vec(lanes, "f32"), valid)))

    def include(columns: list[Index], valid: int | None, states: States) -> States:
        pairs = zip(columns, states, strict=True)
        return [quantizer.include(state, load(column, valid)) for column, state in pairs]

    if kernel.scheme.dynamic:
        states = over_row(b, kernel.k, lanes, include, quantizer.start())
        parameters = quantizer.parameters(quantizer.join(states))
    else:
        parameters = quantizer.given(rest)

    def write(columns: list[Index], valid: int | None, states: States) -> States:
        xs = (load(column, valid) for column in columns)  # each right in front of its codes
        quantizer.write(kernel.target, parameters, xs, (tiles[0], local), columns, valid)
        return states

    over_row(b, kernel.k, lanes, write, writes=tiles[:1])
    quantizer.store(parameters, tiles[1:], [local])


@row_body.register
def row_body_row_ranges(
    kernel: RowRanges, b: Builder, tensors: Values, tiles: Tiles, rows: Rows
) -> None:
    """One row of the first tensor, to the tiles."""
    (row,), (local,) = rows.at, rows.to
    lanes, (source,) = kernel.target.lanes, tensors

    def load(column: Index, valid: int | None) -> ir.Value:
        """A vector of the row; lanes after its end hold its last number."""
        x = b.load(source, [row, column], vec(lanes, "f32"), valid)
        return x if valid is None else b.shuffle(x, x, [min(i, valid - 1) for i in range(lanes)])

    def include(columns: list[Index], valid: int | None, states: States) -> States:
        xs = [load(column, valid) for column in columns]
        return [
            [b.min(x, smallest), b.max(x, largest), b.select_equal(x, x, nan, x)]
            for x, (smallest, largest, nan) in zip(xs, states, strict=True)
        ]

    start = [b.f32(number, lanes) for number in (math.inf, -math.inf, 0.0)]
    first, *others = over_row(b, kernel.k, lanes, include, start)
    how = (b.min, b.max, b.add)
    for other in others:
        first = [f(x, y) for f, x, y in zip(how, first, other, strict=True)]
    *ends, nan = (b.reduce(x, f) for f, x in zip(how, first, strict=True))
    for end, tile in zip(ends, tiles, strict=True):
        b.store(b.add(end, nan), tile, [local], 1)


LANES = 64  # elements at a time


@emit.register
def emit_update_rows(kernel: UpdateRows, operands: Operands) -> list[ir.Value]:
    first: list[Index] = []

    def row(b: Builder, ids: Indices) -> Index:
        return b.part(ids[0], kernel.block, kernel.count)

    def body(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        new, position = tensors
        first.append(b.read_index(position, [0], kernel.rows - kernel.count))
        with b.loop(0, kernel.block, writes=tiles) as loop:
            at = [ids[1], b.offset(row(b, ids), loop.index)]

            def copy(column: Index, size: int) -> None:
                value = b.load(new, [*at, column], vec(size, kernel.element))
                b.store(value, tiles[0], [0, loop.index, column])

            b.sweep(kernel.width, LANES, copy, writes=tiles)

    def offsets(b: Builder, ids: Indices) -> Indices:
        return [ids[1], b.offset(first[0], row(b, ids)), 0]

    tile = (1, kernel.block, kernel.width)
    output = Output(kernel.results[0], tile, offsets, into=0)
    return dispatch(operands, [output], [kernel.blocks, kernel.batch], body)
