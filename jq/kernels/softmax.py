"""Softmax over rows, of scores that may be masked, and the quantization of the result.

    for block of rows in workgroups:
      for 4 rows:                        # together, so that dependent operations overlap
        s = x * scale + mask             -> scratch, max
        e = 2^((s - max) log2 e)         -> scratch, sum
        y = e / sum                      -> stored, or its codes (their range in a pass before)

About 30 operations an element. Error of y: relative below (K / lanes + 40) 2^-24 + 2e-7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from iree.compiler import ir

from jq.errors import InternalError
from jq.kernels.builder import Builder, Tile
from jq.kernels.functions import exp2
from jq.kernels.kernel import Kernel
from jq.kernels.quantization import RowParameters, RowQuantization, RowQuantizer
from jq.kernels.rows import Rows, row_block, row_dispatch
from jq.kernels.tensor import TensorType
from jq.kernels.values import Index, vec

Array = np.ndarray[Any, np.dtype[Any]]
LOG2_E = math.log2(math.e)
TOGETHER = 4
STACK = 192 << 10  # bytes of the rows in scratch


@dataclass(frozen=True, kw_only=True)
class Softmax(Kernel):
    """f32 [batch * heads * queries, K] (, mask) (, scale, zero point) -> f32, its codes, or both.

    Attributes:
        mask: added to the scores: `none`, `keys` f32 [batch, K], or `full` f32
            [batch * queries, K].
        factor: what scores are multiplied with before.
        keep, scheme: as `Normalize` has them; a static scheme takes its operands last.
    """

    family: ClassVar[str] = "softmax"

    batch: int
    heads: int
    queries: int
    k: int
    mask: str = "none"
    factor: float = 1.0
    keep: bool = True
    scheme: RowQuantization | None = None

    def __post_init__(self) -> None:
        if min(self.m, self.k) < 1:
            raise InternalError(f"empty softmax {self.label}")
        if self.mask not in ("none", "keys", "full"):
            raise InternalError(f"unknown mask {self.mask!r}")
        if not self.keep and self.scheme is None:
            raise InternalError("a softmax without a result")
        if self.together * self._padded * 4 > STACK:
            raise InternalError(f"rows of {self.k} are more than the stack can hold")

    @property
    def m(self) -> int:
        return self.batch * self.heads * self.queries

    @property
    def label(self) -> str:
        return f"{self.m}x{self.k}"

    @property
    def operations(self) -> int:
        return 30 * self.m * self.k

    @property
    def _padded(self) -> int:
        return math.ceil(self.k / self.target.lanes) * self.target.lanes

    @property
    def together(self) -> int:
        """Rows at a time."""
        return max(1, min(TOGETHER, row_block(self.m, self.k), STACK // (4 * self._padded)))

    @property
    def operands(self) -> tuple[TensorType, ...]:
        rows = {"none": 0, "keys": self.batch, "full": self.batch * self.queries}[self.mask]
        given = self.scheme.operands if self.scheme is not None else []
        return (
            TensorType((self.m, self.k), "f32"),
            *([TensorType((rows, self.k), "f32")] if rows else []),
            *(TensorType(shape, kind) for shape, kind in given),
        )

    @property
    def results(self) -> tuple[TensorType, ...]:
        kinds = [TensorType((self.m, self.k), "f32")] if self.keep else []
        if self.scheme is not None:
            kinds.append(TensorType((self.m, self.k), "i8"))
            kinds += [TensorType(shape, kind) for shape, kind in self.scheme.results(self.m)]
        return tuple(kinds)

    def mask_row(self, b: Builder, row: Index) -> Index:
        """The mask's row for a row of scores."""
        sample = b.divided(row, self.heads * self.queries)
        if self.mask == "keys":
            return sample
        return b.offset(b.scaled(sample, self.queries), b.modulo(row, self.queries))

    def emit(self, operands: Sequence[ir.Value]) -> list[ir.Value]:
        def body(
            b: Builder,
            tensors: Sequence[ir.Value],
            tiles: Sequence[Tile],
            rows: Rows,
        ) -> None:
            _Rows(self, b, tensors, rows.at).emit(tiles, rows.to)

        inputs = list(zip(operands, self.operands, strict=True))
        return row_dispatch(
            inputs, self.results, body, row_block(self.m, self.k), together=self.together
        )

    def reference(self, x: Array, mask: Array | None = None) -> Array:
        """y in double precision."""
        s = x.astype(np.float64).reshape(self.batch, self.heads, self.queries, self.k) * self.factor
        if mask is not None:
            rows = 1 if self.mask == "keys" else self.queries
            s = s + mask.astype(np.float64).reshape(self.batch, 1, rows, self.k)
        e = np.exp(s - s.max(-1, keepdims=True))
        y: Array = e / e.sum(-1, keepdims=True)
        return y.reshape(self.m, self.k)


class _Rows:
    """The body of a few rows."""

    def __init__(
        self, kernel: Softmax, b: Builder, tensors: Sequence[ir.Value], rows: Sequence[Index]
    ) -> None:
        self.kernel, self.b, self.rows = kernel, b, rows
        self.lanes, self.kind = kernel.target.lanes, vec(kernel.target.lanes, "f32")
        self.source, *rest = tensors
        self.mask = rest.pop(0) if kernel.mask != "none" else None
        self.given = rest
        self.scratch = b.scratch([len(rows), kernel._padded], "f32")
        self.padded = kernel._padded

    def emit(self, tiles: Sequence[Tile], local: Sequence[Index]) -> None:
        b, lanes = self.b, self.lanes
        largest = [b.reduce(v, b.max) for v in self._scores()]
        totals = [b.reduce(v, b.add) for v in self._exps(largest)]
        # A row of -inf has no softmax: inf - inf makes it NaN.
        inverse = [
            b.div(b.f32(1.0, lanes), b.add(t, b.sub(m, m)))
            for t, m in zip(totals, largest, strict=True)
        ]
        self._write(tiles, local, inverse, self._parameters(inverse))

    def _scores(self) -> list[ir.Value]:
        """Masked scores into the scratch (-inf past the end), and their largest lanes."""
        b, lanes, k = self.b, self.lanes, self.kernel.k

        def add(state: Sequence[ir.Value], column: Index, valid: int | None) -> list[ir.Value]:
            out = []
            for i, row in enumerate(self.rows):
                s = b.load(self.source, [row, column], self.kind, valid)
                if self.kernel.factor != 1.0:
                    s = b.rounded(b.mul(s, b.f32(self.kernel.factor, lanes)))
                if self.mask is not None:
                    at = [self.kernel.mask_row(b, row), column]
                    s = b.add(s, b.load(self.mask, at, self.kind, valid))
                s = b.keep(s, valid, -math.inf)
                b.put(s, self.scratch, [i, column])
                out.append(b.max(s, state[i]))
            return out

        state = [b.f32(-math.inf, lanes)] * len(self.rows)
        whole, tail = divmod(k, lanes)
        if whole:
            with b.loop(0, whole * lanes, lanes, carry=state) as loop:
                loop.carried = add(loop.carried, loop.index, None)
            state = loop.carried
        return add(state, whole * lanes, tail) if tail else state

    def _exps(self, largest: Sequence[ir.Value]) -> list[ir.Value]:
        """Exponentials in place (0 past the end), and their sums by lane."""
        b, lanes = self.b, self.lanes

        def one(i: int, column: Index, valid: int | None) -> ir.Value:
            below = b.sub(b.get(self.scratch, [i, column], self.kind), largest[i])
            e = b.keep(exp2(b, b.mul(below, b.f32(LOG2_E, lanes))), valid)
            b.put(e, self.scratch, [i, column])
            return e

        sums = [b.f32(0.0, lanes)] * len(self.rows)
        whole, tail = divmod(self.kernel.k, lanes)
        if whole:
            with b.loop(0, whole * lanes, lanes, carry=sums) as loop:
                loop.carried = [
                    b.add(s, one(i, loop.index, None)) for i, s in enumerate(loop.carried)
                ]
            sums = loop.carried
        if tail:
            sums = [b.add(s, one(i, whole * lanes, tail)) for i, s in enumerate(sums)]
        return sums

    def _parameters(self, inverse: Sequence[ir.Value]) -> list[RowParameters]:
        scheme = self.kernel.scheme
        if scheme is None:
            return []
        b, lanes = self.b, self.lanes
        self.quantizer = quantizer = RowQuantizer(b, scheme, lanes)
        if self.given:
            return [quantizer.given(self.given)] * len(self.rows)
        size = len(quantizer.start())
        with b.loop(0, self.padded, lanes, carry=quantizer.start() * len(self.rows)) as loop:
            out: list[ir.Value] = []
            for i in range(len(self.rows)):
                y = b.mul(b.get(self.scratch, [i, loop.index], self.kind), inverse[i])
                out += quantizer.include(loop.carried[i * size : (i + 1) * size], y)
            loop.carried = out
        return [
            quantizer.parameters(loop.carried[i * size : (i + 1) * size])
            for i in range(len(self.rows))
        ]

    def _write(
        self,
        tiles: Sequence[Tile],
        local: Sequence[Index],
        inverse: Sequence[ir.Value],
        parameters: Sequence[RowParameters],
    ) -> None:
        b, lanes, k = self.b, self.lanes, self.kernel.k
        kept = 1 if self.kernel.keep else 0
        written = tiles[: kept + bool(parameters)]

        def write(column: Index, valid: int | None) -> None:
            for i, to in enumerate(local):
                y = b.mul(b.get(self.scratch, [i, column], self.kind), inverse[i])
                if kept:
                    b.store(y, tiles[0], [to, column], valid)
                if parameters:
                    codes = self.quantizer.codes(parameters[i], y)
                    b.store(codes, tiles[kept], [to, column], valid)

        whole, tail = divmod(k, lanes)
        if whole:
            with b.loop(0, whole * lanes, lanes, writes=written) as loop:
                write(loop.index, None)
        if tail:
            write(whole * lanes, tail)
        for row, to in zip(parameters, local, strict=False):
            self.quantizer.store(row, tiles[kept + 1 :], to)
