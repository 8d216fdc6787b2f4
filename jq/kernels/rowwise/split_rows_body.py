"""The body of `SplitRows`."""

from __future__ import annotations

from functools import partial

from iree.compiler import ir

from jq.kernels.emit.bodies import Operands, emit
from jq.kernels.emit.builder import Builder, Tiles
from jq.kernels.emit.values import Index, Values, vec
from jq.kernels.epilogue.functions import MAGIC_BITS, rounded_bits
from jq.kernels.machine.workgroups import row_block
from jq.kernels.rowwise.quantization import RowQuantization
from jq.kernels.rowwise.quantizer import RowQuantizer
from jq.kernels.rowwise.split_rows import SplitRows
from jq.kernels.schedule.rows import Rows, row_dispatch


@emit.register
def emit_split_rows(kernel: SplitRows, operands: Operands) -> list[ir.Value]:
    def row(b: Builder, tensors: Values, tiles: Tiles, rows: Rows) -> None:
        block = partial(split_block, kernel, b, tensors[0], tiles, rows)
        b.sweep(kernel.k, kernel.block, block, writes=tiles, counted=True)

    return row_dispatch(operands, kernel.results, row, row_block(kernel.m, kernel.k))


def split_block(
    kernel: SplitRows, b: Builder, source: ir.Value, tiles: Tiles, rows: Rows, i: Index, size: int
) -> None:
    """Block `i` of a row, which has `size` columns."""
    (row,), (local,), number = rows.at, rows.to, i
    lanes, first = kernel.target.lanes, b.scaled(number, kernel.block)
    quantizer = RowQuantizer(b, RowQuantization(wide=kernel.steps), lanes)
    places = [(b.offset(first, i), min(lanes, size - i)) for i in range(0, size, lanes)]
    xs = [b.load(source, [row, at], vec(lanes, "f32"), valid) for at, valid in places]
    state = quantizer.start()
    for x in xs:
        state = quantizer.include(state, x)
    found = quantizer.parameters(state)
    assert found.scale is not None and isinstance(found.factor, ir.Value)
    b.store(found.scale, tiles[1], [local, number], 1)
    for x, (at, valid) in zip(xs, places, strict=True):
        steps = b.zero_if_nan(b.mul(x, found.factor))
        bits = rounded_bits(b, steps, found.low, found.high)
        q = b.sub(bits, b.i32(MAGIC_BITS, lanes))
        for digit in reversed(range(kernel.digits)):
            b.store(b.truncate(q, "i8"), tiles[0], [local, digit, at], valid)
            q = b.shift_right(b.add(q, b.i32(128, lanes)), 8)
