"""Integer matrix product with its epilogue: `[M, K] i8 x [K, N] i8 -> [M, N]` f32, i8 or i32.

    for panel, block in workgroups:          # vectors * lanes columns, `block` rows
      for tile of rows in block:
        acc[rows][vectors] = init[columns] (- row_zero * colsum)
        for k in 0 .. K/group:               # vectors weight loads, `rows` broadcasts,
          acc += codes[row, k] * weights     # rows * vectors products
        (the last codes of a K that `group` does not divide)
        epilogue, store

Weights are packed `[panels, K/group, vectors * lanes * group]`: a workgroup reads its panel as one
stream. `init` holds the int32 bias and every constant correction. 2 * M * N * K operations.
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
from jq.kernels import dot, tiled_gemm
from jq.kernels.builder import Builder, Index, Output, Tile, dispatch, vec
from jq.kernels.epilogue import Step, check
from jq.kernels.finish import Epilogue, operand_types
from jq.kernels.kernel import Kernel
from jq.kernels.tensor import TensorType
from jq.kernels.tiled_gemm import TiledCut, pack_weight
from jq.kernels.tiling import Tiling, choose

Array = np.ndarray[Any, np.dtype[Any]]
TILED_ROWS, TILED_DEPTH = 5, 48


@dataclass(frozen=True, kw_only=True)
class Gemm(Kernel):
    """`epilogue(sum_k (codes[m, k] - row_zero[m]) * weight[k, n] + bias[n])`.

    Operands, in order:
        codes: i8 [M, K]; with `unsigned` their unsigned view (`q + 128`).
        weights, init: what `pack` made.
        row_zero: i32 [M], and colsum i32 [N'], if `row_zero`.
        what the epilogue's steps name, step by step; [N] operands have N' elements.
    N' is N, or the lanes of a vector when N is smaller (`pad_columns` fills up). With `batch` above
    one every operand and result has a leading axis of that size, scalars and N' vectors too.

    Attributes:
        m, k, n, batch: the shape.
        unsigned: the codes are stored in their unsigned view.
        row_zero: activations have a zero point per row, known at run time.
        epilogue: steps from i32; none stores the accumulator.
    """

    family: ClassVar[str] = "gemm"

    m: int
    k: int
    n: int
    batch: int = 1
    unsigned: bool = False
    row_zero: bool = False
    epilogue: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        if min(self.m, self.k, self.n, self.batch) < 1:
            raise InternalError(f"empty product {self.label}")
        check(self.epilogue)

    @property
    def label(self) -> str:
        batch = f"{self.batch}x" if self.batch > 1 else ""
        return f"{batch}{self.m}x{self.k}x{self.n}"

    @property
    def operations(self) -> int:
        return 2 * self.batch * self.m * self.k * self.n

    @property
    def on_tiles(self) -> bool:
        """Matrix tiles pay from a few rows on (below, reading the weights is all there is), and
        where K fills them.
        """
        return self.target.tiles and self.m >= TILED_ROWS and self.k >= TILED_DEPTH

    @cached_property
    def tiles(self) -> TiledCut:
        return TiledCut(self.m, self.k, self.n)

    @property
    def lead(self) -> tuple[int, ...]:
        return (self.batch,) if self.batch > 1 else ()

    def sample(self, b: Builder, row: Index) -> Index:
        """Operands by row have one element a row."""
        return row

    @property
    def swapped(self) -> bool:
        """Signed codes where the product reads its left operand as u8: the weights go there, and
        what their offset of 128 adds is 128 times the sum of a row's codes.
        """
        return self.target.dot.lhs_unsigned and not (self.unsigned or self.on_tiles)

    @property
    def reads_unsigned(self) -> bool:
        """Whether the product takes codes as u8; tiles take them as they are stored."""
        if self.on_tiles or self.swapped:
            return self.unsigned
        return self.target.dot.lhs_unsigned

    @cached_property
    def tiling(self) -> Tiling:
        return choose(self.target, self.m, self.k, self.n)

    @property
    def columns(self) -> int:
        """N', the length of operands by column."""
        return max(self.n, self.target.lanes)

    @property
    def groups(self) -> int:
        return math.ceil(self.k / self.target.dot.group)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        lanes, group, cut = self.target.lanes, self.target.dot.group, self.tiling
        weights = (
            self._typed(self.tiles.weights_type, "i32")
            if self.on_tiles
            else self._typed((cut.panels, self.groups, cut.vectors * lanes * group), "i8")
        )
        kinds = [
            self._typed((self.m, self.k), "i8"),
            weights,
            self._typed((self.columns,), "i32"),
        ]
        if self.row_zero:
            kinds += [
                self._typed((self.m,), "i32"),
                self._typed((self.columns,), "i32"),
            ]
        steps = operand_types(self.epilogue, (self.m, self.n), self.columns)
        return (*kinds, *(self._typed(shape, what) for shape, what in steps))

    @property
    def results(self) -> tuple[TensorType, ...]:
        return (self._typed((self.m, self.n), check(self.epilogue)),)

    def _typed(self, shape: tuple[int, ...], kind: str) -> TensorType:
        return TensorType(((self.batch, *shape) if self.batch > 1 else shape), kind)

    # Weights

    def pack(
        self, weight: Array, bias: Array | None = None, zero_point: int = 0
    ) -> dict[str, Array]:
        """The constant operands (`weights`, `init`, `colsum` if needed) of a [K, N] int8 weight.

        `bias` is i32 [N], `zero_point` that of static activations (signed). With `batch`, both
        have the leading axis.
        """
        if self.batch > 1:
            biases = [None] * self.batch if bias is None else list(bias)
            one = [self._pack(w, b, zero_point) for w, b in zip(weight, biases, strict=True)]
            return {name: np.stack([p[name] for p in one]) for name in one[0]}
        return self._pack(weight, bias, zero_point)

    def _pack(self, weight: Array, bias: Array | None, zero_point: int) -> dict[str, Array]:
        if weight.shape != (self.k, self.n) or weight.dtype != np.int8:
            raise InternalError(f"{weight.dtype}{weight.shape} is not the weight of {self.label}")
        colsum = weight.sum(0, dtype=np.int32)
        shift = zero_point + (128 if self.reads_unsigned else 0)
        init = -np.int32(shift) * colsum
        if bias is not None:
            init = init + bias.astype(np.int32)
        parts = {"weights": self._panels(weight), "init": self.pad_columns(init)}
        if self.row_zero:
            parts["colsum"] = self.pad_columns(colsum)
        return parts

    def _panels(self, weight: Array) -> Array:
        """[K, N] -> [panels, K/group, vectors * lanes * group]; K and a narrow N end in zeros."""
        if self.on_tiles:
            return pack_weight(self.tiles, weight)
        if self.swapped:
            weight = weight ^ np.int8(-128)
        lanes, group, cut = self.target.lanes, self.target.dot.group, self.tiling
        width = cut.vectors * lanes
        padded = np.pad(
            weight, ((0, self.groups * group - self.k), (0, max(0, width - self.n)))
        ).reshape(self.groups, group, -1)
        starts = [self._column(panel) for panel in range(cut.panels)]
        panels = [padded[:, :, start : start + width] for start in starts]
        stacked = np.stack(panels).transpose(0, 1, 3, 2)
        return np.ascontiguousarray(stacked).reshape(cut.panels, self.groups, width * group)

    def pad_columns(self, values: Array) -> Array:
        """[..., N] -> [..., N']: zeros up to one vector."""
        extra = self.columns - self.n
        return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, extra)])

    def _column(self, panel: int) -> int:
        width = self.tiling.vectors * self.target.lanes
        return min(panel * width, max(0, self.n - width))

    # Body

    def emit(self, operands: Sequence[ir.Value]) -> list[ir.Value]:
        if self.on_tiles:
            return tiled_gemm.emit(self, list(zip(operands, self.operands, strict=True)))
        cut, lanes = self.tiling, self.target.lanes
        width = min(self.n, cut.vectors * lanes)
        batched = self.batch > 1

        def offsets(b: Builder, ids: Sequence[Index]) -> list[Index]:
            row = b.at_most(b.scaled(ids[0], cut.block), self.m - cut.block)
            column = b.at_most(b.scaled(ids[1], width), self.n - width)
            return [*([ids[2]] if batched else []), row, column]

        tile = (*((1,) if batched else ()), cut.block, width)

        def body(
            b: Builder,
            ids: Sequence[Index],
            tensors: Sequence[ir.Value],
            tiles: Sequence[Tile],
        ) -> None:
            prefix = [ids[2]] if batched else []
            *_, row, column = offsets(b, ids)
            _Panel(self, b, tensors, tiles[0], prefix, row, column, ids[1]).emit()

        return dispatch(
            list(zip(operands, self.operands, strict=True)),
            [Output(self.results[0], tile, offsets)],
            [cut.blocks, cut.panels, *([self.batch] if batched else [])],
            body,
        )

    # Reference

    def reference(
        self,
        codes: Array,
        weight: Array,
        bias: Array | None = None,
        zero: Array | int = 0,
        operands: Sequence[Sequence[Array]] = (),
    ) -> Array:
        """The same in NumPy: signed codes [M, K], weight [K, N], zero point per row or one.

        `operands` holds each step's arrays in broadcastable form.
        """
        q = codes.astype(np.int64) - np.asarray(zero, np.int64).reshape(-1, 1)
        acc = q @ weight.astype(np.int64)
        y: Array = (acc + (0 if bias is None else bias)).astype(np.int32)
        for step, arrays in zip(self.epilogue, operands, strict=True):
            y = step.reference(y, arrays)
        return y


class _Panel:
    """The body of one workgroup: `block` rows from `row`, one panel of columns from `column`."""

    def __init__(
        self,
        gemm: Gemm,
        b: Builder,
        tensors: Sequence[ir.Value],
        tile: Tile,
        prefix: Sequence[Index],
        row: Index,
        column: Index,
        panel: Index,
    ) -> None:
        self.gemm, self.b, self.isa, self.tile = gemm, b, gemm.target, tile
        self.prefix, self.row, self.panel = list(prefix), row, panel
        self.codes, self.weights, init, *rest = tensors
        zeros, steps = (rest[:2], rest[2:]) if gemm.row_zero else ([], rest)
        self.vectors = range(gemm.tiling.vectors)
        self.epilogue = Epilogue(
            b,
            gemm.epilogue,
            steps,
            lanes=self.isa.lanes,
            vectors=len(self.vectors),
            column=column,
            n=gemm.n,
            prefix=prefix,
        )
        self.init = self.epilogue.by_column(init, "i32")
        if zeros:
            self.row_zero = zeros[0]
            self.colsum = self.epilogue.by_column(zeros[1], "i32")

    def emit(self) -> None:
        cut = self.gemm.tiling
        full, rest = divmod(cut.block, cut.rows)
        if full:
            with self.b.loop(0, full * cut.rows, cut.rows, writes=[self.tile]) as loop:
                self._rows(loop.index, cut.rows)
        if rest:
            self._rows(full * cut.rows, rest)

    def _rows(self, first: Index, count: int) -> None:
        """One register tile: `count` rows from `first` (within the block)."""
        b = self.b
        rows = [b.offset(self.row, b.offset(first, i)) for i in range(count)]
        acc = self._start(rows)
        whole, tail = divmod(self.gemm.k, self.isa.dot.group)
        if whole:
            with b.loop(0, whole, carry=acc) as loop:
                loop.carried = self._step(loop.carried, rows, loop.index, None)
            acc = loop.carried
        if tail:
            acc = self._step(acc, rows, whole, tail)
        zero = [0] if self.prefix else []
        for i, row in enumerate(rows):
            ready = self.epilogue.row([row])
            for j in self.vectors:
                value = self.epilogue.apply(acc[i * len(self.vectors) + j], [row], j, ready)
                at = [*zero, b.offset(first, i), j * self.isa.lanes]
                b.store(value, self.tile, at, self.gemm.n)

    def _start(self, rows: Sequence[Index]) -> list[ir.Value]:
        """Where the accumulators of a register tile start from."""
        b, gemm, acc = self.b, self.gemm, []
        offsets = self._row_sums(rows) if gemm.swapped else []
        for i, row in enumerate(rows):
            init = list(self.init)
            if gemm.row_zero:
                zero = self.epilogue.scalar(self.row_zero, [row], "i32")
                init = [b.sub(v, b.mul(zero, c)) for v, c in zip(init, self.colsum, strict=True)]
            acc += [b.sub(v, offsets[i]) for v in init] if offsets else init
        return acc

    def _row_sums(self, rows: Sequence[Index]) -> list[ir.Value]:
        """128 times the sum of every row's codes, in every lane."""
        b, isa, k = self.b, self.isa, self.gemm.k
        width = isa.lanes * isa.dot.group
        ones = dot.splat(b, isa, 1)

        def add(sums: Sequence[ir.Value], at: Index, valid: int | None) -> list[ir.Value]:
            kind = vec(width, "i8")
            codes = [b.load(self.codes, [*self.prefix, row, at], kind, valid) for row in rows]
            return [dot.dot(b, isa, s, ones, c) for s, c in zip(sums, codes, strict=True)]

        sums = [b.i32(0, isa.lanes)] * len(rows)
        whole, tail = divmod(k, width)
        if whole:
            with b.loop(0, whole * width, width, carry=sums) as loop:
                loop.carried = add(loop.carried, loop.index, None)
            sums = loop.carried
        if tail:
            sums = add(sums, whole * width, tail)
        return [b.shift_left(b.reduce(s, b.add), 7) for s in sums]

    def _step(
        self, acc: Sequence[ir.Value], rows: Sequence[Index], k: Index, valid: int | None
    ) -> list[ir.Value]:
        """All products of one group along K."""
        b, isa = self.b, self.isa
        size = isa.lanes * isa.dot.group
        weights = [
            dot.weights(b, isa, self.weights, [*self.prefix, self.panel, k, j * size])
            for j in self.vectors
        ]
        flip = self.gemm.unsigned and not isa.dot.lhs_unsigned
        column = b.scaled(k, isa.dot.group)
        out = list(acc)
        for i, row in enumerate(rows):
            lhs = dot.codes(b, isa, self.codes, [*self.prefix, row, column], flip, valid)
            for j, weight in enumerate(weights):
                at = i * len(weights) + j
                pair = (weight, lhs) if self.gemm.swapped else (lhs, weight)
                out[at] = dot.dot(b, isa, out[at], *pair)
        return out
