"""The body of `QuantizeBlocks`."""

import numpy as np
from iree.compiler import ir

from jq.base.errors import InternalError
from jq.formats import get_format
from jq.kernels.emit import Builder, Index, Operands, Tiles, Values, emit, vec
from jq.kernels.emit.vector_ops import VectorOps
from jq.kernels.machine.tiling import row_block
from jq.kernels.rowwise.quantize_blocks import QuantizeBlocks
from jq.kernels.schedule.rows import Rows, row_dispatch


@emit.register
def emit_quantize_blocks(kernel: QuantizeBlocks, operands: Operands) -> list[ir.Value]:
    fmt = get_format(kernel.format)

    def body(b: Builder, tensors: Values, tiles: Tiles, rows: Rows) -> None:
        (row,), (to,), ops = rows.at, rows.to, VectorOps(b, kernel.target)
        largest = None
        if kernel.whole:
            largest = ops.array(b.load(tensors[1], [0], vec(1, "f32")), (1, 1), np.float32)

        def step(number: Index, length: int) -> None:
            at, enc = b.scaled(number, kernel.step), kernel.piece(length)
            loaded = b.load(tensors[0], [row, at], vec(length, "f32"))
            x = ops.array(loaded, (1, length), np.float32)
            if not kernel.coded:
                b.store(fmt.fake_quantize(ops, x, enc).value, tiles[0], [to, at])
                return
            found = fmt.integers_of_data(ops, x, enc, largest)
            if found is None:
                raise InternalError(f"{kernel.format} has no integers")
            b.store(found.codes.value, tiles[0], [to, at])
            block = b.scaled(number, kernel.step // kernel.size)
            b.store(found.scale.value, tiles[1], [to, block])

        b.sweep(kernel.k, kernel.step, step, writes=tiles, counted=True)

    return row_dispatch(operands, kernel.results, body, row_block(kernel.m, kernel.k))
