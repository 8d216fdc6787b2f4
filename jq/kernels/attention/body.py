"""The body of `Attention`: two dispatches, of which the second has a workgroup a block of rows."""

from __future__ import annotations

from iree.compiler import ir

from jq.kernels.attention.amx import TiledHead
from jq.kernels.attention.description import Attention
from jq.kernels.attention.head import Head
from jq.kernels.attention.pack import pack
from jq.kernels.attention.skeleton import over_rows
from jq.kernels.build.bodies import Operands, emit
from jq.kernels.build.builder import Builder, Tile
from jq.kernels.build.values import Index, Values


@emit.register
def _(kernel: Attention, operands: Operands) -> list[ir.Value]:
    q, k, v, *rest = operands
    packed = zip(pack(kernel, [k, v]), kernel.packed, strict=True)
    body_of_head = TiledHead if kernel.on_tiles else Head

    def body(
        b: Builder, tensors: Values, tile: Tile, row: Index, head: Index, batch: Index
    ) -> None:
        body_of_head(kernel, b, tensors, tile, row, head, batch).emit(kernel.block)

    return over_rows(kernel, [q, *packed, *rest], kernel.results[0], body)
