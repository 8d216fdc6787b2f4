"""Products of float activations and stored weights, decoded in registers.

    y[m, n] = sum_k x[m, k] * decode(weight)[n, k]

The weight is read as its format stores it, [N, K] with K last; the decode is the format's own
(`Format.decode`), emitted on vectors. No float weight exists outside of registers and, for more
than a few rows, of a panel that stays in the core's cache:

    few rows:   for step of K: w = decode(4 columns); acc[rows][4] += x[rows, step] * w
    many rows:  panel[8][K] = decode(8 columns)
                for 4 rows: for k: acc[4][4] += x[rows, k] * panel[columns, k]

2 M N K operations. Sums are in f32, `lanes` partial ones along K: the error is below
(K / lanes + log2(lanes) + 1) 2^-24 of the sum of magnitudes, plus that of the decode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from iree.compiler import ir

from jq.errors import InternalError
from jq.formats import Encoding, get_format
from jq.kernels.builder import Builder, Tile
from jq.kernels.dispatch import Output, dispatch
from jq.kernels.kernel import Kernel
from jq.kernels.tensor import TensorType
from jq.kernels.values import Index, vec
from jq.kernels.vector_ops import Array, VectorOps, element_name

STEP, STEP_OF_BLOCKS = 128, 32  # values decoded at once, about; where blocks are stored apart
DIRECT_ROWS = 4  # up to here weights are decoded and used at once
ROWS, COLUMNS = 4, 4  # of a register tile
PANEL_BYTES = 128 * 1024  # decoded weights of a workgroup with many rows


@dataclass(frozen=True, kw_only=True)
class DecodeDot(Kernel):
    """f32 [M, K] x stored [N, K] -> f32 [M, N].

    Operands, in order: x f32 [M, K]; the parts of the weight, as `Format.storage` lists them.

    Attributes:
        format, block, scheme, scale_type, options: the weight's encoding; `block` has an entry for
            N (0 or 1) and for K.
    """

    family: ClassVar[str] = "decode_dot"

    m: int
    k: int
    n: int
    format: str
    block: tuple[int, ...]
    scheme: str = "symmetric"
    scale_type: str = "float32"
    options: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if min(self.m, self.k, self.n) < 1:
            raise InternalError(f"empty product {self.label}")
        if self.block[0] > 1:
            raise InternalError(f"blocks {self.block} cross rows of the weight")

    @property
    def label(self) -> str:
        return f"{self.m}x{self.k}x{self.n}_{self.format}"

    @property
    def operations(self) -> int:
        return 2 * self.m * self.k * self.n

    @property
    def encoding(self) -> Encoding:
        return self._of((self.n, self.k), self.block)

    def _of(self, shape: tuple[int, ...], block: tuple[int, ...]) -> Encoding:
        options = tuple((key, value) for key, value in self.options)
        return Encoding(self.format, shape, block, self.scheme, self.scale_type, options)

    def piece(self, length: int) -> Encoding:
        """The encoding of `length` values of a row, from a multiple of `step`."""
        return self._of((1, length), (self.block[0], min(self.block[1], length)))

    @cached_property
    def step(self) -> int:
        """Values decoded at once: whole blocks whose parts are whole bytes."""
        block = self.block[1]
        if block == 0:
            return min(64, self.k)
        step, flat = block, all(len(shape) == 2 for shape, _ in self.storage.values())
        while step < (STEP if flat else STEP_OF_BLOCKS) or not self._divides(step):
            step += block
        return step if step <= self.k else self.k

    def _divides(self, step: int) -> bool:
        """Whether two steps take twice the room of one, in every part with an entry a block."""
        one, two = (
            get_format(self.format).storage(self._of((1, n), (self.block[0], self.block[1])))
            for n in (step, 2 * step)
        )
        return all(two[p][0][1] == 2 * one[p][0][1] for p in one if p not in ("tensor_scale",))

    @property
    def storage(self) -> dict[str, tuple[tuple[int, ...], Any]]:
        return dict(get_format(self.format).storage(self.encoding))

    @property
    def operands(self) -> tuple[TensorType, ...]:
        parts = [TensorType(shape, element_name(d)) for shape, d in self.storage.values()]
        return (TensorType((self.m, self.k), "f32"), *parts)

    @property
    def results(self) -> tuple[TensorType, ...]:
        return (TensorType((self.m, self.n), "f32"),)

    @property
    def direct(self) -> bool:
        return self.m <= DIRECT_ROWS

    @property
    def padded(self) -> int:
        """K rounded up to whole vectors."""
        lanes = self.target.lanes
        return math.ceil(self.k / lanes) * lanes

    @property
    def columns(self) -> int:
        """Columns of a workgroup."""
        if self.direct:
            return min(self.n, COLUMNS)
        fits = max(1, PANEL_BYTES // (4 * self.padded))
        return min(self.n, 2 * COLUMNS if fits >= 2 * COLUMNS else min(COLUMNS, fits))

    def emit(self, operands: Sequence[ir.Value]) -> list[ir.Value]:
        width = self.columns

        def offsets(b: Builder, ids: Sequence[Index]) -> list[Index]:
            return [0, b.at_most(b.scaled(ids[0], width), self.n - width)]

        def body(
            b: Builder, ids: Sequence[Index], tensors: Sequence[ir.Value], tiles: Sequence[Tile]
        ) -> None:
            _Group(self, b, tensors, tiles[0], offsets(b, ids)[1]).emit()

        return dispatch(
            list(zip(operands, self.operands, strict=True)),
            [Output(self.results[0], (self.m, width), offsets)],
            [math.ceil(self.n / width)],
            body,
        )

    def reference(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """The product in float64, with a decoded weight [N, K]."""
        return x.astype(np.float64) @ weight.astype(np.float64).T


class _Group:
    """The body of one workgroup: all rows, the columns from `column`."""

    def __init__(
        self,
        kernel: DecodeDot,
        b: Builder,
        tensors: Sequence[ir.Value],
        tile: Tile,
        column: Index,
    ) -> None:
        self.kernel, self.b, self.tile, self.column = kernel, b, tile, column
        self.x, *parts = tensors
        self.parts = dict(zip(kernel.storage, parts, strict=True))
        self.lanes = kernel.target.lanes

    def emit(self) -> None:
        if self.kernel.direct:
            self._direct()
        else:
            self._panel()

    # Decoding

    def _decode(self, column: Index, step: Index, length: int) -> list[ir.Value]:
        """Values of one column from `step` on, as vectors of `lanes`; zeros fill the last."""
        kernel = self.kernel
        ops = VectorOps(self.b, kernel.target)
        piece = kernel.piece(length)
        fmt = get_format(kernel.format)
        whole, full = kernel.storage, fmt.storage(kernel.piece(kernel.step))
        parts = {
            name: self._load(ops, name, whole[name][0], full[name][0], shape, dtype, column, step)
            for name, (shape, dtype) in fmt.storage(piece).items()
        }
        value: Array = fmt.decode(ops, parts, piece)
        count = math.ceil(length / self.lanes)
        return [self._lanes(value.value, i * self.lanes, length) for i in range(count)]

    def _load(
        self,
        ops: VectorOps,
        name: str,
        whole: tuple[int, ...],
        full: tuple[int, ...],
        shape: tuple[int, ...],
        dtype: Any,
        column: Index,
        step: Index,
    ) -> Array:
        """The part of one piece: `shape` of an operand of shape `whole`, `full` a step."""
        row = column if whole[0] > 1 else 0
        along = self.b.scaled(step, full[1]) if whole[1] > full[1] else 0
        at = [row, along, *([0] * (len(whole) - 2))]
        count = math.prod(shape)
        if len(whole) > 2 and shape[1] != 1:
            raise InternalError(f"a step of {name} is more than a block")
        loaded = self.b.load(self.parts[name], at, vec(count, element_name(dtype)))
        return ops.array(loaded, shape, dtype)

    def _lanes(self, value: ir.Value, first: int, length: int) -> ir.Value:
        """`lanes` values from `first` of a vector of `length`; zeros behind its end."""
        valid = min(self.lanes, length - first)
        if length == self.lanes:
            return value
        cut = self.b.shuffle(value, value, [min(first + i, length - 1) for i in range(self.lanes)])
        return self.b.keep(cut, valid)

    def _rows_at(self, row: Index, at: Index, valid: int) -> ir.Value:
        return self.b.load(self.x, [row, at], vec(self.lanes, "f32"), valid)

    # Few rows

    def _direct(self) -> None:
        b, kernel = self.b, self.kernel
        acc = [b.f32(0.0, self.lanes)] * (kernel.m * kernel.columns)
        whole, tail = divmod(kernel.k, kernel.step)
        with b.loop(0, whole, carry=acc) as loop:
            loop.carried = self._step(loop.carried, loop.index, kernel.step)
        acc = loop.carried
        if tail:
            acc = self._step(acc, whole, tail)
        for row in range(kernel.m):
            self._store(row, acc[row * kernel.columns : (row + 1) * kernel.columns], 0)

    def _step(self, acc: Sequence[ir.Value], step: Index, length: int) -> list[ir.Value]:
        b, kernel, out = self.b, self.kernel, list(acc)
        for c in range(kernel.columns):
            for i, w in enumerate(self._decode(b.offset(self.column, c), step, length)):
                at = b.offset(b.scaled(step, kernel.step), i * self.lanes)
                valid = length - i * self.lanes
                for row in range(kernel.m):
                    j = row * kernel.columns + c
                    out[j] = b.fma(self._rows_at(row, at, valid), w, out[j])
        return out

    # Many rows

    def _panel(self) -> None:
        b, kernel = self.b, self.kernel
        panel = b.scratch((kernel.columns, kernel.padded), "f32")
        with b.loop(0, kernel.columns) as column:
            self._fill(panel, column.index)
        full, rest = divmod(kernel.m, ROWS)
        for first in range(0, kernel.columns, COLUMNS):
            columns = min(COLUMNS, kernel.columns - first)
            if full:
                with b.loop(0, full * ROWS, ROWS, writes=[self.tile]) as loop:
                    self._tile(panel, loop.index, ROWS, first, columns)
            if rest:
                self._tile(panel, full * ROWS, rest, first, columns)

    def _fill(self, panel: ir.Value, column: Index) -> None:
        b, kernel = self.b, self.kernel
        whole, tail = divmod(kernel.k, kernel.step)

        def put(step: Index, length: int) -> None:
            for i, w in enumerate(self._decode(b.offset(self.column, column), step, length)):
                at = b.offset(b.scaled(step, kernel.step), i * self.lanes)
                room = kernel.step - i * self.lanes if length == kernel.step else self.lanes
                if room < self.lanes:
                    w = b.shuffle(w, w, list(range(room)))
                b.put(w, panel, [column, at])

        with b.loop(0, whole) as loop:
            put(loop.index, kernel.step)
        if tail:
            put(whole, tail)

    def _tile(self, panel: ir.Value, row: Index, rows: int, first: int, columns: int) -> None:
        b, kernel, lanes = self.b, self.kernel, self.lanes
        acc = [b.f32(0.0, lanes)] * (rows * columns)
        whole, tail = divmod(kernel.k, lanes)

        def products(acc: Sequence[ir.Value], at: Index, valid: int) -> list[ir.Value]:
            out = list(acc)
            kind = vec(lanes, "f32")
            ws = [b.keep(b.get(panel, [first + c, at], kind), valid) for c in range(columns)]
            for i in range(rows):
                x = self._rows_at(b.offset(row, i), at, valid)
                for c, w in enumerate(ws):
                    out[i * columns + c] = b.fma(x, w, out[i * columns + c])
            return out

        if whole:
            with b.loop(0, whole * lanes, lanes, carry=acc) as loop:
                loop.carried = products(loop.carried, loop.index, lanes)
            acc = loop.carried
        if tail:
            acc = products(acc, whole * lanes, tail)
        for i in range(rows):
            self._store(b.offset(row, i), acc[i * columns : (i + 1) * columns], first)

    def _store(self, row: Index, sums: Sequence[ir.Value], first: int) -> None:
        """The sums of all lanes of each accumulator, side by side."""
        b = self.b
        totals = [b.shuffle(t, t, [0]) for t in (b.reduce(v, b.add) for v in sums)]
        out = totals[0]
        for i, total in enumerate(totals[1:]):
            out = b.shuffle(out, total, [*range(i + 1), i + 1])
        b.store(out, self.tile, [row, first])
