"""The body of `IntegerAttention`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from iree.compiler import ir

from jq.kernels.build.bodies import Operand, emit
from jq.kernels.build.builder import Builder, Tile
from jq.kernels.build.dispatch import Output, dispatch
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

    def row(b: Builder, ids: Sequence[Index]) -> Index:
        return b.at_most(b.scaled(ids[0], kernel.block), kernel.queries - kernel.block)

    def offsets(b: Builder, ids: Sequence[Index]) -> list[Index]:
        return [ids[2], row(b, ids), b.scaled(ids[1], kernel.dim)]

    def body(
        b: Builder, ids: Sequence[Index], tensors: Sequence[ir.Value], tiles: Sequence[Tile]
    ) -> None:
        wanted: Index = kernel.block
        if kernel.sequences:
            *tensors, counts = tensors
            first = b.offset(b.scaled(ids[2], kernel.queries), row(b, ids))
            wanted = wanted_rows(b, kernel.sequences, counts, first, kernel.block)
        CodesHead(kernel, b, tensors, tiles[0], row(b, ids), ids[1], ids[2]).emit(wanted)

    output = Output(kernel.results[0], (1, kernel.block, kernel.dim), offsets)
    blocks = math.ceil(kernel.queries / kernel.block)
    operands = [q, *packed, zeros, *rest]
    return dispatch(operands, [output], [blocks, kernel.heads, kernel.batch], body)
