"""The body of `DecodeDot`."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from iree.compiler import ir

from jq.base.errors import InternalError
from jq.formats import get_format
from jq.kernels.emit import Builder, Index, Indices, Tile, Tiles, Values, transpose, vec
from jq.kernels.emit.dispatches import Operand, Operands, Output, dispatch, emit
from jq.kernels.emit.vector_ops import Array, VectorOps
from jq.kernels.epilogue.emission import TOGETHER, Columns, Epilogue, Row
from jq.kernels.gemm.body import multiply
from jq.kernels.gemv.decode_dot import DecodeDot
from jq.kernels.machine import TiledCut, row_block
from jq.kernels.machine.tile_cut import ROWS as TILE
from jq.kernels.schedule.rows import Rows, row_dispatch
from jq.kernels.tensor import TensorType, element_name

Words = Callable[[Index, int, Values], None]


class _Group:
    """The columns from `column` of a weight: their values, and their products with few rows."""

    def __init__(self, kernel: DecodeDot, b: Builder, tensors: Values, column: Index) -> None:
        self.kernel, self.b, self.column = kernel, b, column
        self.x, *parts = tensors
        self.parts = dict(zip(kernel.storage, parts, strict=True))
        self.lanes = kernel.target.lanes

    def _decode(self, column: Index, step: Index, length: int) -> list[ir.Value]:
        """Values of one column from `step` on, as vectors of `lanes`; zeros fill the last."""
        ops, piece = VectorOps(self.b, self.kernel.target), self.kernel.piece(length)
        fmt = get_format(piece.format)
        parts = {
            name: ops.array(self._load(name, shape, dtype, column, step), shape, dtype)
            for name, (shape, dtype) in fmt.storage(piece).items()
        }
        value: Array = fmt.decode(ops, parts, piece)
        count = math.ceil(length / self.lanes)
        return [self._lanes(value.value, i * self.lanes, length) for i in range(count)]

    def put_words(self, stage: ir.Value, column: Index, step: Index, length: int) -> None:
        """A column's values from `step` on, as words: f32, or pairs of bf16."""
        b, convert, size = self.b, self.kernel.target.bf16_convert, 2 * self.lanes
        values = self._decode(b.offset(self.column, column), step, length)
        if self.kernel.halved:
            values += [b.f32(0.0, self.lanes)] * (len(values) % 2)
            pairs = [values[i : i + 2][::-1] for i in range(0, len(values), 2)]
            values = [b.intrinsic(convert, vec(size, "bf16"), pair) for pair in pairs]
        for i, value in enumerate(values):
            b.put(b.bitcast(value, vec(self.lanes, "i32")), stage, [column, i * self.lanes])

    def words(self, side: int, depth: int, put: Words, **options: Any) -> None:
        """Calls `put(value, left, words)` for every `depth` values of a step: the first of them,
        how many the step still has, and the words of `side` columns, along K."""
        b, step = self.b, self.kernel.step
        stage = b.scratch([side, math.ceil(step / depth) * side], "i32")

        def decode(number: Index, length: int) -> None:
            with b.loop(0, min(side, self.kernel.n)) as column:
                self.put_words(stage, column.index, number, length)
            for i, at in enumerate(range(0, length, depth)):
                rows = [b.get(stage, [c, i * side], vec(side, "i32")) for c in range(side)]
                put(b.offset(b.scaled(number, step), at), length - at, transpose(b, rows))

        b.sweep(self.kernel.k, step, decode, counted=True, **options)

    def _load(
        self, name: str, shape: tuple[int, ...], dtype: Any, column: Index, step: Index
    ) -> ir.Value:
        """`shape` elements of a part of the weight: of one column, from `step` on."""
        whole, full = (parts[name][0] for parts in (self.kernel.storage, self.kernel.stored_step))
        row = column if whole[0] > 1 else 0
        along = self.b.scaled(step, full[1]) if whole[1] > full[1] else 0
        at = [row, along, *([0] * (len(whole) - 2))]
        if len(whole) > 2 and shape[1] != 1:
            raise InternalError(f"a step of {name} is more than a block")
        return self.b.load(self.parts[name], at, vec(math.prod(shape), element_name(dtype)))

    def _lanes(self, value: ir.Value, first: int, length: int) -> ir.Value:
        """`lanes` values from `first` of a vector of `length`; zeros after its end."""
        valid = min(self.lanes, length - first)
        if length == self.lanes:
            return value
        cut = self.b.shuffle(value, value, [min(first + i, length - 1) for i in range(self.lanes)])
        return self.b.keep(cut, valid)

    def few_rows(self, tile: Tile) -> None:
        """All rows, of as many columns as a workgroup has."""
        b, kernel = self.b, self.kernel
        acc = [b.f32(0.0, self.lanes)] * (kernel.m * kernel.width)
        acc = b.fold(kernel.k, kernel.step, self._step, acc, counted=True)
        for row in range(kernel.m):
            sums = acc[row * kernel.width : (row + 1) * kernel.width]
            totals = [b.shuffle(t, t, [0]) for t in (b.reduce(v, b.add) for v in sums)]
            out = totals[0]
            for i, total in enumerate(totals[1:]):
                out = b.shuffle(out, total, [*range(i + 1), i + 1])
            b.store(out, tile, [row, 0])

    def _step(self, acc: Values, step: Index, length: int) -> list[ir.Value]:
        b, kernel, out = self.b, self.kernel, list(acc)
        for c in range(kernel.width):
            for i, w in enumerate(self._decode(b.offset(self.column, c), step, length)):
                at = b.offset(b.scaled(step, kernel.step), i * self.lanes)
                valid = length - i * self.lanes
                for row in range(kernel.m):
                    j = row * kernel.width + c
                    x = b.load(self.x, [row, at], vec(self.lanes, "f32"), valid)
                    out[j] = b.fma(x, w, out[j])
        return out


@emit.register
def emit_decode_dot(kernel: DecodeDot, operands: Operands) -> list[ir.Value]:
    count = 1 + len(kernel.storage)
    if kernel.panelled:
        return multiply(kernel.gemm, operands, partial(_with_panel, kernel))
    if not kernel.direct:
        weight = _decoded(kernel, operands[:count])
        return emit(kernel.gemm, [operands[0], weight, *operands[count:]])
    width = kernel.width

    def offsets(b: Builder, ids: Indices) -> list[Index]:
        return [0, b.part(ids[0], width, kernel.n)]

    def body(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        _Group(kernel, b, tensors, offsets(b, ids)[1]).few_rows(tiles[0])

    sums = TensorType((kernel.m, kernel.n), "f32")
    output = Output(sums, (kernel.m, width), offsets)
    found = dispatch(operands[:count], [output], [math.ceil(kernel.n / width)], body)
    if not kernel.epilogue:
        return found
    given, block = [(found[0], sums), *operands[count:]], row_block(kernel.m, kernel.n)
    return row_dispatch(given, kernel.results, partial(_finish, kernel), block)


def _with_panel(kernel: DecodeDot, b: Builder, tensors: Values, column: Index) -> Values:
    """The operands of the `Gemm`, of its weights the panel from `column` on."""
    count, lanes = 1 + len(kernel.storage), kernel.target.lanes
    width = kernel.gemm.tiling.vectors * lanes
    panel = b.scratch([1, kernel.k, width], "f32")
    with b.loop(0, width, lanes) as vector:

        def put(at: Index, left: int, words: Values) -> None:
            for i, word in enumerate(words[:left]):
                value = b.bitcast(word, vec(lanes, "f32"))
                b.put(value, panel, [0, b.offset(at, i), vector.index])

        first = b.offset(column, vector.index)
        _Group(kernel, b, tensors[:count], first).words(lanes, lanes, put)
    return [tensors[0], panel, *tensors[count:]]


def _decoded(kernel: DecodeDot, operands: Operands) -> Operand:
    """The weight as its `Gemm` takes it, a workgroup for each vector of columns."""
    gemm, half = kernel.gemm, kernel.halved
    cut, vectors, kind = gemm.tiles, gemm.tiling.vectors, gemm.operands[1]
    side = TILE if half else kernel.target.lanes  # columns, and words along K, that change places
    pair, depth = (2, cut.depth) if half else (1, side)  # values of a word, and along K
    element = vec(depth, "i16" if half else "f32")
    count, width = kind.shape[0] * (1 if gemm.on_tiles else vectors), vectors * side

    def body(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        if gemm.on_tiles:
            first = _tile_column(b, cut, ids[0])
        else:
            panel, vector = b.divided(ids[0], vectors), b.modulo(ids[0], vectors)
            start = b.part(panel, width, kernel.n)
            first = b.offset(start, b.scaled(vector, side))

        def put(at: Index, left: int, words: Values) -> None:
            if gemm.on_tiles:
                chunk = b.divided(at, depth)
                for r, row in enumerate(words):
                    b.store(row, tiles[0], [0, chunk, r * side])
                return
            word = b.divided(at, pair)
            for r, row in enumerate(words[: math.ceil(left / pair)]):
                b.store(b.bitcast(row, element), tiles[0], [0, b.offset(word, r), 0])

        _Group(kernel, b, tensors, first).words(side, depth, put, writes=tiles)

    def offsets(b: Builder, ids: Indices) -> list[Index]:
        if gemm.on_tiles:
            return [ids[0], 0, 0]
        return [b.divided(ids[0], vectors), 0, b.scaled(b.modulo(ids[0], vectors), depth)]

    row = kind.shape[2] if gemm.on_tiles else depth
    output = Output(kind, (1, kind.shape[1], row), offsets)
    return dispatch(operands, [output], [count], body)[0], kind


def _tile_column(b: Builder, cut: TiledCut, number: Index) -> Index:
    """The first column of a matrix tile."""
    panel, vector = b.divided(number, cut.vectors), b.modulo(number, cut.vectors)
    span, part = b.divided(panel, cut.panels), b.modulo(panel, cut.panels)
    start = b.part(span, cut.range, cut.n)
    local = b.part(part, cut.width, cut.range)
    return b.offset(b.offset(start, local), b.scaled(vector, TILE))


def _finish(kernel: DecodeDot, b: Builder, tensors: Values, tiles: Tiles, rows: Rows) -> None:
    """The epilogue of a row, some vectors at a time; the last ones end where it does."""
    (row,), (to,), lanes = rows.at, rows.to, kernel.target.lanes
    together = max(1, min(TOGETHER, kernel.n // lanes))
    width = together * lanes
    with b.loop(0, kernel.n, width, writes=tiles) as loop:
        column = b.at_most(loop.index, max(0, kernel.n - width))
        place = Columns(lanes, together, column, kernel.n)
        epilogue = Epilogue(b, kernel.epilogue, tensors[1:], place)
        sums = [epilogue.element(tensors[0], "f32", [row], j) for j in range(together)]
        epilogue.store(kernel.target, tiles[0], [Row(sums, [row], [to], [row], column)])
