"""Rows of floats to int8 codes, with a given scale or one per row from the row itself.

    for block of rows in workgroups:
      for row in block:
        range of the row             (dynamic: one pass, 4 vectors at a time)
        scale, inverse, zero point   (a division each)
        codes of the row             (a second pass, from cache)

About 4 operations an element for the range and 5 for the code; bound by memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from iree.compiler import ir

from jq.errors import InternalError
from jq.kernels.builder import Builder, Tile
from jq.kernels.kernel import Kernel
from jq.kernels.quantization import RowQuantization, RowQuantizer
from jq.kernels.rows import Rows, over_row, row_block, row_dispatch
from jq.kernels.sequences import Sequences
from jq.kernels.tensor import TensorType
from jq.kernels.values import Index, vec

UNROLL = 4


@dataclass(frozen=True, kw_only=True)
class QuantizeRows(Kernel):
    """f32 [M, K] (, f32 factors [K]) -> i8 [M, K] (, f32 scale [M]) (, i32 zero point [M]).

    `factors`: columns are multiplied before.
    The static scheme has two more operands, its scale f32 [1], in [2^-70, 2^100], and its zero
    point i32 [1]. With `sequences` some rows are left out.
    """

    family: ClassVar[str] = "quantize_rows"
    together: ClassVar[int] = 1

    m: int
    k: int
    scheme: RowQuantization = field(default_factory=RowQuantization)
    factors: bool = False
    sequences: Sequences | None = None

    def __post_init__(self) -> None:
        if min(self.m, self.k) < 1:
            raise InternalError(f"empty matrix {self.label}")

    @property
    def label(self) -> str:
        return f"{self.m}x{self.k}"

    @property
    def operations(self) -> int:
        return (9 if self.scheme.dynamic else 8) * self.m * self.k

    @property
    def operands(self) -> tuple[TensorType, ...]:
        given = [TensorType(shape, kind) for shape, kind in self.scheme.operands]
        factors = [TensorType((self.k,), "f32")] * self.factors
        counts = [self.sequences.operand(self.m)] if self.sequences else []
        return (TensorType((self.m, self.k), "f32"), *factors, *given, *counts)

    @property
    def row_operands(self) -> tuple[int, ...]:
        return (0,)

    def by_sequences(self, sequences: Sequences) -> QuantizeRows:
        return replace(self, sequences=sequences)

    @property
    def results(self) -> tuple[TensorType, ...]:
        behind = [TensorType(shape, kind) for shape, kind in self.scheme.results(self.m)]
        return (TensorType((self.m, self.k), "i8"), *behind)

    def emit(self, operands: Sequence[ir.Value]) -> list[ir.Value]:
        inputs = list(zip(operands, self.operands, strict=True))
        block = row_block(self.m, self.k)
        return row_dispatch(inputs, self.results, self.body, block, sequences=self.sequences)

    def body(
        self,
        b: Builder,
        tensors: Sequence[ir.Value],
        tiles: Sequence[Tile],
        rows: Rows,
    ) -> None:
        """One row of the first tensor, to the tiles."""
        (row,), (local,) = rows.at, rows.to
        lanes = self.target.lanes
        quantizer = RowQuantizer(b, self.scheme, lanes)
        source, *rest = tensors
        factors = rest.pop(0) if self.factors else None

        def load(column: Index, valid: int | None) -> ir.Value:
            x = b.load(source, [row, column], vec(lanes, "f32"), valid)
            if factors is None:
                return x
            return b.rounded(b.mul(x, b.load(factors, [column], vec(lanes, "f32"), valid)))

        if self.scheme.dynamic:
            states = over_row(
                b,
                self.k,
                lanes,
                UNROLL,
                lambda columns, valid, states: [
                    quantizer.include(state, load(column, valid))
                    for column, state in zip(columns, states, strict=True)
                ],
                quantizer.start(),
            )
            parameters = quantizer.parameters(quantizer.join(states))
        else:
            parameters = quantizer.given(rest)

        def write(
            columns: list[Index], valid: int | None, states: list[list[ir.Value]]
        ) -> list[list[ir.Value]]:
            if quantizer.packs(self.target, len(columns), valid):
                xs = [load(column, None) for column in columns]
                packed = quantizer.packed(self.target, parameters, xs)
                b.store(packed, tiles[0], [local, columns[0]])
                return states
            for column in columns:
                codes = quantizer.codes(parameters, load(column, valid))
                b.store(codes, tiles[0], [local, column], valid)
            return states

        over_row(b, self.k, lanes, UNROLL, write, writes=tiles[:1])
        quantizer.store(parameters, tiles[1:], local)
