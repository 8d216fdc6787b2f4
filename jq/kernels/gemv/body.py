"""The body of `Gemv`."""

import math
from dataclasses import replace

from iree.compiler import ir

from jq.kernels.emit import Builder, Index, Indices, Tile, Tiles, Values
from jq.kernels.emit.dispatches import Operands, Output, dispatch, emit
from jq.kernels.gemv.decoded import decoded, sum_rows
from jq.kernels.gemv.description import Gemv
from jq.kernels.gemv.panel_weights import Part
from jq.kernels.gemv.panels import RowPanels
from jq.kernels.gemv.tiled import pack_rows, tiled
from jq.kernels.schedule import prefetch


def _plain(gemv: Gemv, b: Builder, tensors: Values, tile: Tile, whole: Part) -> None:
    """Parts of a workgroup, as wide as registers allow."""
    stage = None
    if gemv.staged:
        size = gemv.target.lanes * gemv.unit.dot.group
        room = math.ceil(gemv.k / size) * size
        stage = b.scratch([gemv.rows, room], gemv.unit.dot.element)

    address = prefetch.address(tensors[2]) if gemv.ahead else None

    def emit_part(first: Index) -> None:
        part = replace(whole, first=first, wide=gemv.together)
        RowPanels(gemv, b, tensors, tile, part, stage, address).emit()

    if gemv.together % gemv.vectors:
        for first in range(0, whole.wide, gemv.together):
            emit_part(first)
        return
    with b.loop(0, whole.wide, gemv.together, writes=[tile]) as loop:
        emit_part(loop.index)


@emit.register
def emit_gemv(gemv: Gemv, given: Operands) -> list[ir.Value]:
    operands = list(given)
    width, rows = min(gemv.n, gemv.width), gemv.row_block
    chosen = [operands.pop(3)] if gemv.stack else []
    if gemv.tiled:
        (codes, *sums), rest = pack_rows(gemv, operands[:2]), operands[1:]
        operands = [codes, *rest, *sums]
    elif gemv.decoded:
        operands = [*operands, *sum_rows(gemv, operands[:2])]

    def column(b: Builder, ids: Indices) -> Index:
        return b.part(ids[0], width, gemv.n)

    def row(b: Builder, ids: Indices) -> Index:
        return b.part(ids[1], rows, gemv.m)

    def body(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        wide, weight = gemv.streams * gemv.vectors, dict[str, Index]()
        if chosen:
            *tensors, numbers = tensors
            number = b.read_index(numbers, [ids[1]], gemv.stack)
            weight["there"] = b.smaller(b.above(gemv.stack, number), 1)
            weight["panel"] = b.scaled(b.at_most(number, gemv.stack - 1), gemv.streams)
        whole = Part(ids[0], column(b, ids), row(b, ids), 0, wide, **weight)
        if gemv.tiled:
            tiled(gemv, b, tensors, tiles[0], whole, ids[1])
        else:
            (decoded if gemv.decoded else _plain)(gemv, b, tensors, tiles[0], whole)

    output = Output(gemv.results[0], (rows, width), lambda b, ids: [row(b, ids), column(b, ids)])
    counts = [gemv.workgroups, math.ceil(gemv.m / rows)]
    return dispatch([*operands, *chosen], [output], counts, body)
