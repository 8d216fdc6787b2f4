"""The two dispatches of `Attention` of a few rows (`few_rows`)."""

import math

from iree.compiler import ir

from jq.kernels.attention.description import Attention
from jq.kernels.attention.few_rows import FewRows
from jq.kernels.attention.shown import shown
from jq.kernels.emit.bodies import Operands
from jq.kernels.emit.builder import Builder, Tiles
from jq.kernels.emit.dispatch import Output, dispatch
from jq.kernels.emit.values import Index, Indices, Values
from jq.kernels.epilogue.emission import Columns, Epilogue
from jq.kernels.machine import workgroups
from jq.kernels.schedule.rows import split
from jq.kernels.tensor import TensorType

KEYS = 32  # of a workgroup
VECTORS = 4  # columns of a workgroup, in vectors


def _spread(b: Builder, number: Index, parts: int) -> Index:
    """The part of a workgroup: a thread takes `CHUNK` workgroups one after the other, and the keys
    that a mask shows lie side by side."""
    if parts % workgroups.CHUNK:
        return number
    within = b.scaled(b.modulo(number, workgroups.CHUNK), parts // workgroups.CHUNK)
    return b.offset(within, b.divided(number, workgroups.CHUNK))


def attend(kernel: Attention, operands: Operands) -> ir.Value:
    """The attention, f32 [B, Sq, heads, D]."""
    q, k, v, *rest = operands
    masked = kernel.mask != "none"
    group, count = kernel.heads // kernel.kv_heads, min(KEYS, kernel.keys)
    kind = TensorType((kernel.batch, kernel.kv_heads, group * kernel.queries, kernel.keys), "f32")
    lanes = kernel.target.lanes

    parts = math.ceil(kernel.keys / count)

    def first_key(b: Builder, ids: Indices) -> Index:
        part = _spread(b, ids[0], parts)
        return b.at_most(b.scaled(part, count), kernel.keys - count)

    def score(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        rows, begin = FewRows(kernel, b, ids[2], ids[1]), first_key(b, ids)
        mask = tensors[2] if masked else None
        low, end = shown(kernel, b, mask, ids[2], 0, kernel.queries, begin, count)
        for i in range(len(rows.rows)):
            for place in range(0, count, lanes):
                b.store(b.f32(-math.inf, lanes), tiles[0], [0, 0, i, place])
        span = b.above(end, low)
        with b.loop(0, b.at_most(span, 1), writes=tiles):
            queries = rows.queries(tensors[0])
            with b.loop(0, span, lanes, writes=tiles) as loop:
                at = b.at_most(b.offset(low, loop.index), count - lanes)
                key = b.at_most(b.offset(begin, at), last)
                for i, value in enumerate(rows.scores(queries, tensors[1], mask, key)):
                    b.store(value, tiles[0], [0, 0, i, at])

    last = kernel.keys - lanes
    tile = Output(
        kind, (1, 1, kind.shape[2], count), lambda b, ids: [ids[2], ids[1], 0, first_key(b, ids)]
    )
    grid = [parts, kernel.kv_heads, kernel.batch]
    inputs = [q, k, *rest[: int(masked)]]
    (scores,) = dispatch(inputs, [tile], grid, score)
    width = min(kernel.dim, VECTORS * lanes)

    def column(b: Builder, ids: Indices) -> Index:
        return b.at_most(b.scaled(ids[0], width), kernel.dim - width)

    def value(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        rows, (found, v, *more) = FewRows(kernel, b, ids[2], ids[1]), tensors
        mask = more.pop(0) if masked else None
        epilogue = Epilogue(b, kernel.epilogue, more, Columns(lanes, 0, 0, kernel.dim))
        seen = shown(kernel, b, mask, ids[2], 0, kernel.queries)
        at = b.offset(rows.start(2), column(b, ids))
        for (query, head), own in zip(
            rows.rows, split(rows.values(found, v, seen, at, width), len(rows.rows)), strict=True
        ):
            for j, x in enumerate(own):
                y = epilogue.apply(kernel.target, x, [], 0, epilogue.row([]))
                b.store(y, tiles[0], [0, query, head, j * lanes], width - j * lanes)

    whole = TensorType(
        (kernel.batch, kernel.queries, kernel.heads, kernel.dim), kernel.results[0].element
    )
    out = Output(
        whole,
        (1, kernel.queries, group, width),
        lambda b, ids: [ids[2], 0, b.scaled(ids[1], group), column(b, ids)],
    )
    grid = [math.ceil(kernel.dim / width), kernel.kv_heads, kernel.batch]
    (found,) = dispatch([(scores, kind), v, *rest], [out], grid, value)
    return found
