"""Emits an epilogue: loads what its steps name, once where it can be, and applies them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iree.compiler import ir

from jq.kernels.builder import Builder
from jq.kernels.epilogue import COLUMN, ELEMENT, ROW, SCALAR, Step
from jq.kernels.values import Index, vec


def operand_types(
    steps: Sequence[Step], result: tuple[int, ...], padded: int, rows: tuple[int, ...] | None = None
) -> list[tuple[tuple[int, ...], str]]:
    """Shape and element of every operand of `steps`, for a result of shape `[*rows, n]`."""
    rows = result[:-1] if rows is None else rows
    shapes = {COLUMN: (padded,), ROW: rows, ELEMENT: result, SCALAR: (1,)}
    return [(shapes[how], what) for step in steps for how, what in step.operands]


class Epilogue:
    """The epilogue of one panel: `vectors` vectors of columns from `column`, all of its rows."""

    def __init__(
        self,
        b: Builder,
        steps: Sequence[Step],
        tensors: Sequence[ir.Value],
        *,
        lanes: int,
        vectors: int,
        column: Index,
        n: int,
        prefix: Sequence[Index] = (),
    ) -> None:
        self.b, self.lanes, self.n, self.prefix = b, lanes, n, list(prefix)
        self.columns = [b.offset(column, j * lanes) for j in range(vectors)]
        remaining = iter(tensors)
        self.steps = [
            (
                step,
                [
                    (how, what, self._once(next(remaining), how, what))
                    for how, what in step.operands
                ],
            )
            for step in steps
        ]

    def by_column(self, source: ir.Value, kind: str) -> list[ir.Value]:
        """The panel's vectors of an operand [N']."""
        wide = vec(self.lanes, kind)
        return [self.b.load(source, [*self.prefix, c], wide) for c in self.columns]

    def scalar(self, source: ir.Value, at: Sequence[Index], kind: str) -> ir.Value:
        """One element in every lane."""
        one = self.b.load(source, [*self.prefix, *at], vec(1, kind))
        return self.b.broadcast(one, self.lanes)

    def _once(self, source: ir.Value, how: str, what: str) -> Any:
        """What does not depend on the row is loaded here, the rest stays a tensor."""
        if how == COLUMN:
            return self.by_column(source, what)
        return self.scalar(source, [0], what) if how == SCALAR else source

    def row(self, at: Sequence[Index]) -> list[list[Any]]:
        """The operands of every step for the row at `at`."""
        return [
            [self.scalar(s, at, what) if how == ROW else s for how, what, s in sources]
            for _, sources in self.steps
        ]

    def apply(
        self, value: ir.Value, at: Sequence[Index], j: int, row: Sequence[Sequence[Any]]
    ) -> ir.Value:
        """All steps on the panel's vector `j` of the row at `at`."""
        for (step, sources), ready in zip(self.steps, row, strict=True):
            operands = [
                self._operand(how, what, source, at, j)
                for (how, what, _), source in zip(sources, ready, strict=True)
            ]
            value = step.apply(self.b, value, operands)
        return value

    def _operand(self, how: str, what: str, source: Any, at: Sequence[Index], j: int) -> ir.Value:
        if how == COLUMN:
            return source[j]
        if how != ELEMENT:
            return source
        position = [*self.prefix, *at, self.columns[j]]
        return self.b.load(source, position, vec(self.lanes, what), self.n)
