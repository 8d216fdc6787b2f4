"""The body of `Winograd`: a dispatch in front of the products, and one behind them, of a workgroup
for each line of tiles."""

import math
from collections.abc import Callable

from iree.compiler import ir

from jq.kernels.convolution.winograd import POINTS, Winograd
from jq.kernels.emit import Builder, Index, Indices, Tiles, Values, vec
from jq.kernels.emit.dispatches import Operand, Operands, Output, dispatch, emit
from jq.kernels.epilogue.emission import Columns, Epilogue, Row
from jq.kernels.gemm.body import multiply
from jq.kernels.machine import dot

SIDE = 4  # numbers of a tile along H and W


@emit.register
def emit_winograd(conv: Winograd, operands: Operands) -> list[ir.Value]:
    image, weights, *steps = operands
    (sums,) = multiply(conv.gemm, [_points(conv, image), weights])
    return _pixels(conv, [(sums, conv.gemm.results[0]), *steps])


def _there(b: Builder, x: Values) -> list[ir.Value]:
    """B' x."""
    return [b.sub(x[0], x[2]), b.add(x[1], x[2]), b.sub(x[2], x[1]), b.sub(x[1], x[3])]


def _back(b: Builder, m: Values) -> list[ir.Value]:
    """A' m."""
    return [b.add(b.add(m[0], m[1]), m[2]), b.sub(b.sub(m[1], m[2]), m[3])]


def _both_ways(
    b: Builder,
    step: Callable[[Builder, Values], list[ir.Value]],
    read: Callable[[int, int], ir.Value],
) -> list[list[ir.Value]]:
    """The 4x4 numbers that are read, by a step along H and then along W."""
    columns = [step(b, [read(i, j) for i in range(SIDE)]) for j in range(SIDE)]
    return [step(b, row) for row in zip(*columns, strict=True)]


def _points(conv: Winograd, image: Operand) -> Operand:
    """[B, H, W * C] -> V [16, tiles, C], as it is multiplied."""
    isa, result = conv.target, conv.gemm.operands[0]
    lines = conv.output[0] // 2

    def offsets(b: Builder, ids: Indices) -> list[Index]:
        return [0, b.scaled(ids[0], conv.line), 0]

    def body(b: Builder, ids: Indices, tensors: Values, out: Tiles) -> None:
        sample, top = b.divided(ids[0], lines), b.scaled(b.modulo(ids[0], lines), 2)
        with b.loop(0, conv.line, writes=out) as tiles:
            left = b.scaled(tiles.index, 2 * conv.channels)
            with b.loop(0, math.ceil(conv.channels / isa.lanes), writes=out) as vectors:
                channel = b.part(vectors.index, isa.lanes, conv.channels)

                def read(i: int, j: int) -> ir.Value:
                    column = b.offset(b.offset(left, j * conv.channels), channel)
                    at = [sample, b.offset(top, i), column]
                    return dot.floats(b, tensors[0], at, isa.lanes, conv.channels)

                points = [v for row in _both_ways(b, _there, read) for v in row]
                if conv.halves:
                    pairs = zip(points[::2], points[1::2], strict=True)
                    bits = [dot.halves(b, isa, pair) for pair in pairs]
                    points = [point for two in bits for point in b.split(two, isa.lanes)]
                for i, point in enumerate(points):
                    b.store(point, out[0], [i, tiles.index, channel], conv.channels)

    output = Output(result, (POINTS, conv.line, conv.channels), offsets)
    return dispatch([image], [output], [conv.batch * lines], body)[0], result


def _pixels(conv: Winograd, operands: Operands) -> list[ir.Value]:
    """M [16, tiles, F], what the epilogue's steps name -> [pixels, F]."""
    isa, (high, wide) = conv.target, conv.output

    def offsets(b: Builder, ids: Indices) -> list[Index]:
        return [b.scaled(ids[0], 2 * wide), 0]

    def body(b: Builder, ids: Indices, tensors: Values, out: Tiles) -> None:
        sums, *steps = tensors
        sample, first = b.divided(ids[0], high // 2), b.scaled(ids[0], conv.line)
        with b.loop(0, conv.line, writes=out) as tiles:
            tile = b.offset(first, tiles.index)
            with b.loop(0, math.ceil(conv.filters / isa.lanes), writes=out) as vectors:
                column = b.part(vectors.index, isa.lanes, conv.filters)

                def read(i: int, j: int) -> ir.Value:
                    at = [SIDE * i + j, tile, column]
                    return b.load(sums, at, vec(isa.lanes, "f32"), conv.filters)

                panel = Columns(isa.lanes, 1, column, conv.filters)
                epilogue, finished = Epilogue(b, conv.epilogue, steps, panel), []
                for i, row in enumerate(_both_ways(b, _back, read)):
                    for j, value in enumerate(row):
                        to = b.offset(b.scaled(tiles.index, 2), i * wide + j)
                        pixel = b.offset(b.scaled(ids[0], 2 * wide), to)
                        finished.append(Row([value], [pixel], [to], [sample], column))
                epilogue.store(isa, out[0], finished)

    output = Output(conv.results[0], (2 * wide, conv.filters), offsets)
    return dispatch(operands, [output], [conv.batch * high // 2], body)
