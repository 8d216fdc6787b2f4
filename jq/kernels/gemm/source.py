"""Input of a product's loop nest: the places of codes and weights, and the part of the product."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from iree.compiler import ir

from jq.kernels.emit import Builder, Index, Indices, Values, vec
from jq.kernels.epilogue.emission import Epilogue
from jq.kernels.gemm.product import PanelProduct, Product
from jq.kernels.machine import dot


@dataclass(frozen=True, kw_only=True)
class Source(ABC):
    """Place of the codes of a product's row, and of a panel's weights.

    Attributes:
        runs: runs of codes along two axes; each is read as a stream.
        whole: steps of a run that read whole groups of codes.
        tail: codes after them.
        run_steps: steps of a run in the packed weights.
        stored: weights of a vector's step that exist; None: all.
        flip: codes are stored in the other view (signed or unsigned) than the product reads.
        streams: places in memory that a panel's weights are read from at once.
        fetches: weights are fetched one panel ahead.
        in_pieces: an epilogue among products is cut into pieces of a few vectors."""

    product: PanelProduct
    whole: int = 0
    tail: int = 0
    flip: bool = False
    runs: tuple[int, int] = (1, 1)
    run_steps: int = 0
    stored: int | None = None
    streams: int = 1
    fetches: bool = True
    in_pieces: bool = False

    @property
    @abstractmethod
    def length(self) -> int:
        """Codes of a run."""

    @abstractmethod
    def corner(self, b: Builder, row: Index) -> list[Index]:
        """Start of the codes of a row."""

    def tap(self, b: Builder, corner: Indices, h: Index, w: Index) -> list[Index]:
        """Start of run (h, w) of a row's codes."""
        return list(corner)

    def sample(self, b: Builder, row: Index) -> Index:
        """Index of operands by row."""
        return row

    def row_sums(self, b: Builder, codes: ir.Value, corners: Sequence[Indices]) -> list[ir.Value]:
        """The sum of every row's codes, as they are stored, in every lane."""
        isa, (high, wide) = self.product.target, self.runs
        size = isa.lanes * isa.dot.group
        sums = [b.i32(0, isa.lanes)] * len(corners)

        def add(sums: Values, at: Index, valid: int) -> list[ir.Value]:
            places = ([*lead, b.offset(column, at)] for *lead, column in starts)
            found = (b.load(codes, place, vec(size, "i8"), valid) for place in places)
            unsigned = self.product.unsigned
            return [dot.add_codes(b, isa, s, c, unsigned) for s, c in zip(sums, found, strict=True)]

        with b.loop(0, high, carry=sums) as down:
            with b.loop(0, wide, carry=down.carried) as along:
                starts = [self.tap(b, corner, down.index, along.index) for corner in corners]
                along.carried = b.fold(self.length, size, add, along.carried)
            down.carried = along.carried
        return [b.reduce(s, b.add) for s in down.carried]


@dataclass(frozen=True)
class PanelPart:
    """The part of a product that a panel computes.

    Attributes:
        rows: of the product, all of them.
        row, column, panel: first row, first column, number in the packed weights.
        prefix: of a batch.
        group: of the columns, where each reads codes of its own.
        to: column of the tile where the first one is stored."""

    rows: int
    row: Index
    column: Index
    panel: Index
    prefix: Indices = ()
    group: Index = 0
    to: Index = 0


def split_starts(gemm: Product, tensors: Values) -> tuple[Values, Values]:
    """The operands after the weights: what sums start from, and those of the epilogue."""
    count = len(gemm.start_types())
    return tensors[:count], tensors[count:]


def first_sums(epilogue: Epilogue, starts: Values) -> list[ir.Value]:
    """`init` for the panel's vectors, the first of `starts`; floats begin at 0."""
    if starts:
        return epilogue.by_column(starts[0], "i32")
    return [epilogue.b.f32(0.0, epilogue.lanes)] * len(epilogue.columns)


class Start:
    """The start (or end) of accumulators: everything but the products.

        init[n] - row_zero[m] * colsum[n] - sum_k codes[m, k] * column_zero[n]

    The last term also takes out an offset of the weights, which is the same for every column."""

    def __init__(
        self, gemm: Product, epilogue: Epilogue, init: Values, corrections: Values
    ) -> None:
        self.gemm, self.epilogue, self.b = gemm, epilogue, epilogue.b
        self.init = list(init)
        rest = list(corrections)
        if gemm.row_zero:
            self.row_zero = rest.pop(0)
            self.colsum = epilogue.by_column(rest.pop(0), "i32")
        if gemm.column_zero:
            self.column_zero = epilogue.by_column(rest.pop(0), "i32")
        elif gemm.weight_offset:
            offset = self.b.i32(gemm.weight_offset, epilogue.lanes)
            self.column_zero = [offset] * len(self.init)

    @property
    def needs_sums(self) -> bool:
        return self.gemm.column_zero or bool(self.gemm.weight_offset)

    def of(self, row: Index, total: ir.Value | None) -> list[ir.Value]:
        """The panel's vectors for a row whose codes sum to `total`."""
        b, start = self.b, self.init
        if self.gemm.row_zero:
            zero = self.epilogue.scalar(self.row_zero, [row], "i32")
            start = [b.sub(v, b.mul(zero, c)) for v, c in zip(start, self.colsum, strict=True)]
        if total is not None:
            start = [
                b.sub(v, b.mul(total, c)) for v, c in zip(start, self.column_zero, strict=True)
            ]
        return start
