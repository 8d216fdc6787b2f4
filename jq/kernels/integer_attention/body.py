"""The body of `IntegerAttention`."""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir

from jq.kernels.attention.skeleton import over_rows
from jq.kernels.build.bodies import Operand, emit
from jq.kernels.build.builder import Builder, Tile
from jq.kernels.build.values import Index
from jq.kernels.integer_attention.description import IntegerAttention
from jq.kernels.integer_attention.head import CodesHead
from jq.kernels.integer_attention.pack import pack
from jq.kernels.schedule.ragged_rows import wanted_rows


@emit.register
def _(kernel: IntegerAttention, operands: Sequence[Operand]) -> list[ir.Value]:
    q, k, v, zeros, *rest = operands
    shown = rest[:2] if kernel.skips else []
    packed = zip(pack(kernel, [k, v, zeros, *shown]), kernel.packed, strict=True)

    def body(
        b: Builder,
        tensors: Sequence[ir.Value],
        tile: Tile,
        row: Index,
        head: Index,
        batch: Index,
    ) -> None:
        wanted: Index = kernel.block
        if kernel.sequences:
            *tensors, counts = tensors
            first = b.offset(b.scaled(batch, kernel.queries), row)
            wanted = wanted_rows(b, kernel.sequences, counts, first, kernel.block)
        CodesHead(kernel, b, tensors, tile, row, head, batch).emit(wanted)

    return over_rows(kernel, [q, *packed, zeros, *rest], kernel.results[0], body)
