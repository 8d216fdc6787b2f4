"""The body of `RowChain`."""

from collections.abc import Callable
from functools import partial

from iree.compiler import ir

from jq.kernels.emit import Builder, Index, Operands, Tile, Tiles, Values, emit, vec
from jq.kernels.epilogue.functions import MAGIC_BITS, rounded_bits
from jq.kernels.machine.tiling import row_block
from jq.kernels.rowwise import row_chain
from jq.kernels.rowwise.body import row_body
from jq.kernels.rowwise.description import Normalize, RowQuantization
from jq.kernels.rowwise.quantizer import RowQuantizer
from jq.kernels.rowwise.row_chain import RowChain, SplitRows
from jq.kernels.schedule.rows import Rows, States, over_row, row_dispatch


class _Row:
    """A row on its way through the steps: `source` holds it, in line `at`."""

    def __init__(self, kernel: RowChain, b: Builder, source: ir.Value, rows: Rows) -> None:
        self.kernel, self.b, self.source = kernel, b, source
        (self.row,), (self.local,) = rows.at, rows.to
        self.at: Index = self.row

    def take(self, step: row_chain.RowStep, operands: Values, tiles: Tiles) -> None:
        """One step, with its own operands and results."""
        if isinstance(step, row_chain.Normalized):
            self._normalize(step, operands, tiles)
        elif isinstance(step, row_chain.Added):
            self._add(operands[0], tiles)
        elif isinstance(step, row_chain.Coded):
            code = partial(self._code, step, tiles)
            self.b.sweep(self.kernel.k, step.block, code, writes=tiles, counted=True)
        else:
            self._split(step, tiles)

    def _next(self) -> Tile:
        shape = (1, self.kernel.k)
        return Tile(self.b.scratch(shape, "f32"), shape)

    def _become(self, made: Tile, tiles: Tiles) -> None:
        """The row is the one that was made; it is stored where it is a result."""
        self.source, self.at = made.value, 0
        if tiles:
            self._each(self._load, tiles[0], self.local)

    def _load(self, column: Index, valid: int | None) -> ir.Value:
        kind = vec(self.kernel.target.lanes, "f32")
        return self.b.load(self.source, [self.at, column], kind, valid)

    def _each(self, value: Callable[[Index, int | None], ir.Value], tile: Tile, at: Index) -> None:
        """Stores `value(column, valid)` along a row of the tile."""
        b = self.b

        def store(columns: list[Index], valid: int | None, states: States) -> States:
            for column in columns:
                b.store(value(column, valid), tile, [at, column], valid)
            return states

        over_row(b, self.kernel.k, self.kernel.target.lanes, store, writes=[tile])

    def _normalize(self, step: row_chain.Normalized, operands: Values, tiles: Tiles) -> None:
        chain, made, given = self.kernel, self._next(), {**vars(step), "keep": True}
        kernel = Normalize(isa=chain.isa, m=chain.m, k=chain.k, **given)
        row_body(kernel, self.b, [self.source, *operands], [made], Rows([self.at], [0], 1))
        self._become(made, tiles)

    def _add(self, other: ir.Value, tiles: Tiles) -> None:
        b, made, kind = self.b, self._next(), vec(self.kernel.target.lanes, "f32")

        def total(column: Index, valid: int | None) -> ir.Value:
            own = b.rounded(self._load(column, valid))  # it may be a product
            return b.add(own, b.load(other, [self.row, column], kind, valid))

        self._each(total, made, 0)
        self._become(made, tiles)

    def _code(self, step: row_chain.Coded, tiles: Tiles, number: Index, size: int) -> None:
        """The codes of block `number`, which has `size` columns."""
        b, lanes = self.b, self.kernel.target.lanes
        quantizer, first = RowQuantizer(b, step.scheme, lanes), b.scaled(number, step.block)
        places = [(b.offset(first, i), min(lanes, size - i)) for i in range(0, size, lanes)]
        xs = [self._load(*place) for place in places]
        found = quantizer.of_block(xs)
        for x, (column, valid) in zip(xs, places, strict=True):
            place = (tiles[0], self.local)
            quantizer.write(self.kernel.target, found, [x], place, [column], valid)
        quantizer.store(found, tiles[1:], [self.local, number])

    def _split(self, step: row_chain.Digits, tiles: Tiles) -> None:
        kernel, rows = self.kernel, Rows([self.at], [self.local], 1)
        split = SplitRows(
            isa=kernel.isa, m=kernel.m, k=kernel.k, block=step.block, digits=step.digits
        )
        block = partial(split_block, split, self.b, self.source, tiles, rows)
        self.b.sweep(kernel.k, step.block, block, writes=tiles, counted=True)


@emit.register
def emit_row_chain(kernel: RowChain, operands: Operands) -> list[ir.Value]:
    def body(b: Builder, tensors: Values, tiles: Tiles, rows: Rows) -> None:
        source, *given = tensors
        row, left = _Row(kernel, b, source, rows), list(tiles)
        for step in kernel.steps:
            taken, made = len(kernel.taken(step)), len(kernel.given(step))
            row.take(step, given[:taken], left[:made])
            given, left = given[taken:], left[made:]

    return row_dispatch(operands, kernel.results, body, row_block(kernel.m, kernel.k))


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
    (row,), (local,) = rows.at, rows.to
    lanes, first = kernel.target.lanes, b.scaled(i, kernel.block)
    quantizer = RowQuantizer(b, RowQuantization(wide=kernel.steps), lanes)
    places = [(b.offset(first, j), min(lanes, size - j)) for j in range(0, size, lanes)]
    xs = [b.load(source, [row, at], vec(lanes, "f32"), valid) for at, valid in places]
    found = quantizer.of_block(xs)
    assert isinstance(found.factor, ir.Value)
    quantizer.store(found, tiles[1:], [local, i])
    for x, (at, valid) in zip(xs, places, strict=True):
        steps = b.zero_if_nan(b.mul(x, found.factor))
        bits = rounded_bits(b, steps, found.low, found.high)
        q = b.sub(bits, b.i32(MAGIC_BITS, lanes))
        for digit in reversed(range(kernel.digits)):
            b.store(b.truncate(q, "i8"), tiles[0], [local, digit, at], valid)
            q = b.shift_right(b.add(q, b.i32(128, lanes)), 8)
