"""The body of `UpdateRows`."""

from iree.compiler import ir

from jq.kernels.emit.bodies import Operands, emit
from jq.kernels.emit.builder import Builder, Tiles
from jq.kernels.emit.dispatch import Output, dispatch
from jq.kernels.emit.values import Index, Indices, Values, vec
from jq.kernels.rowwise.update_rows import UpdateRows

LANES = 64  # elements at a time


@emit.register
def emit_update_rows(kernel: UpdateRows, operands: Operands) -> list[ir.Value]:
    first: list[Index] = []

    def row(b: Builder, ids: Indices) -> Index:
        return b.at_most(b.scaled(ids[0], kernel.block), kernel.count - kernel.block)

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
