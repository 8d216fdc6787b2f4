"""The body of `Attention`: two dispatches, of which the second has a workgroup a block of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from iree.compiler import ir

from jq.kernels.attention.amx import TiledHead
from jq.kernels.attention.description import Attention
from jq.kernels.attention.head import Head
from jq.kernels.attention.pack import pack
from jq.kernels.build.bodies import Operand, emit
from jq.kernels.build.builder import Builder, Tile
from jq.kernels.build.dispatch import Output, dispatch
from jq.kernels.build.values import Index


@emit.register
def _(kernel: Attention, operands: Sequence[Operand]) -> list[ir.Value]:
    q, k, v, *rest = operands
    packed = zip(pack(kernel, [k, v]), kernel.packed, strict=True)
    body_of_head = TiledHead if kernel.on_tiles else Head

    def row(b: Builder, ids: Sequence[Index]) -> Index:
        return b.at_most(b.scaled(ids[0], kernel.block), kernel.queries - kernel.block)

    def offsets(b: Builder, ids: Sequence[Index]) -> list[Index]:
        return [ids[2], row(b, ids), b.scaled(ids[1], kernel.dim)]

    def body(
        b: Builder, ids: Sequence[Index], tensors: Sequence[ir.Value], tiles: Sequence[Tile]
    ) -> None:
        body_of_head(kernel, b, tensors, tiles[0], row(b, ids), ids[1], ids[2]).emit()

    output = Output(kernel.results[0], (1, kernel.block, kernel.dim), offsets)
    blocks = math.ceil(kernel.queries / kernel.block)
    return dispatch([q, *packed, *rest], [output], [blocks, kernel.heads, kernel.batch], body)
