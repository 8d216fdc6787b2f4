"""Emits an epilogue: loads what its steps name, once where it can be, applies them and stores."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from iree.compiler import ir

from jq.kernels.emit import Builder, Index, Indices, Tile, Values, batches, vec
from jq.kernels.epilogue.emitters import emitter
from jq.kernels.epilogue.functions import DOUBT, doubt
from jq.kernels.epilogue.rescale_emitter import RescaleEmitter as RescaleEmitter  # registers itself
from jq.kernels.epilogue.step import COLUMN, ELEMENT, ROW, SCALAR, Step
from jq.kernels.machine.dot import PACKED
from jq.kernels.machine.isa import Isa

# Vectors that go through the steps as one, so that their chains of dependent operations overlap:
# a processor looks about a hundred operations ahead, and a chain alone is that long.
TOGETHER = 4


@dataclass(frozen=True)
class Row:
    """One row of a register tile: its accumulators, one a vector of columns.

    Attributes:
        at: where its operands by element are.
        to: where it goes in the output tile; vector j of it `j` vectors after `column`.
        by_row: where its operands by row are.
        first: which vector of the epilogue's columns the first accumulator is.
        valid: columns from `column` on, where they are fewer than the accumulators have."""

    accumulators: Values
    at: Indices
    to: Indices
    by_row: Indices
    column: Index = 0
    first: int = 0
    valid: int | None = None


@dataclass(frozen=True)
class _Place:
    """Vector j of a row, with the row's operands of every step."""

    row: Row
    j: int
    operands: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Columns:
    """Vectors of columns side by side: of so many lanes, so many, from where on, of how many."""

    lanes: int
    vectors: int
    first: Index
    n: int


class Epilogue:
    """The epilogue of the columns of a panel, all of its rows."""

    def __init__(
        self, b: Builder, steps: Sequence[Step], tensors: Values, to: Columns, prefix: Indices = ()
    ) -> None:
        self.b, self.lanes, self.n, self.prefix = b, to.lanes, to.n, list(prefix)
        self.columns = [b.offset(to.first, j * to.lanes) for j in range(to.vectors)]
        remaining = iter(tensors)
        self.steps = [_Prepared(self, step, remaining) for step in steps]

    def by_column(self, source: ir.Value, kind: str) -> list[ir.Value]:
        """The panel's vectors of an operand [N']."""
        wide = vec(self.lanes, kind)
        return [self.b.load(source, [*self.prefix, c], wide) for c in self.columns]

    def scalar(self, source: ir.Value, at: Indices, kind: str) -> ir.Value:
        """One element in every lane."""
        one = self.b.load(source, [*self.prefix, *at], vec(1, kind))
        return self.b.broadcast(one, self.lanes)

    def once(self, source: ir.Value, how: str, what: str) -> Any:
        """Loads an operand that does not depend on the row; any other stays a tensor."""
        if how == COLUMN:
            return self.by_column(source, what)
        return self.scalar(source, [0], what) if how == SCALAR else source

    def row(self, at: Indices) -> list[list[Any]]:
        """The operands of every step for the row at `at`."""
        return [
            [self.scalar(s, at, what) if how == ROW else s for how, what, s in step.sources]
            for step in self.steps
        ]

    def store(self, isa: Isa, tile: Tile, rows: Sequence[Row], chain: int = TOGETHER) -> None:
        """Applies all steps to the rows of a register tile, and stores them; so many vectors at a
        time up to where they are packed."""
        ready = [self.row(row.by_row) for row in rows]
        places = [
            _Place(row, j, operands)
            for row, operands in zip(rows, ready, strict=True)
            for j in range(len(row.accumulators))
        ]
        for together in batches(places, TOGETHER):
            self._store(isa, tile, together, chain)

    @property
    def long(self) -> bool:
        return any(prepared.step.long for prepared in self.steps)

    def packs(self, isa: Isa) -> bool:
        """True if results are codes, four vectors of which become one."""
        last = self.steps[-1].step if self.steps else None
        return last is not None and last.packs and bool(isa.packs) and self.lanes == isa.lanes

    def _store(self, isa: Isa, tile: Tile, places: Sequence[_Place], chain: int) -> None:
        """Places whose number is a power of two."""
        b = self.b
        if not self.packs(isa):
            self._scatter(tile, self._applied(isa, places, len(self.steps)), places)
            return
        last, steps = self.steps[-1].emitter, self._steps(isa, places, chain)
        for first in range(0, len(steps), PACKED):
            some = places[first : first + PACKED]
            turns = [i % len(some) for i in range(PACKED)]  # of two, both pairs are the same
            four = [steps[first + i] for i in turns]
            ends = [self._prepared(-1, some[i]) for i in turns]
            self._scatter(tile, last.pack(b, isa, four, ends), some)

    def _steps(self, isa: Isa, places: Sequence[_Place], chain: int) -> list[ir.Value]:
        """The values that are rounded to the codes of some places: quotients in one multiplication,
        and again exactly in the rare case that one of them is next to a half."""
        b, last, ending = self.b, len(self.steps) - 1, self.steps[-1].emitter

        def found(near: list[ir.Value] | None) -> list[ir.Value]:
            steps = []
            for some in batches(places, chain):
                value, operands = self._applied(isa, some, last, near), self._operands(last, some)
                short = near is not None and ending.has_near
                result = (ending.near if short else ending.whole)(b, value, operands)
                parts = b.split(result, self.lanes)
                steps += parts
                if near is not None and short:
                    near += parts
            return steps

        if not (isa.rounds and chain < TOGETHER and any(s.emitter.has_near for s in self.steps)):
            return found(None)
        near: list[ir.Value] = []
        steps = found(near)
        worst = doubt(b, near[0])
        for quotient in near[1:]:
            worst = b.max_int(worst, doubt(b, quotient))
        return b.rarely(b.any_above(worst, DOUBT), lambda: found(None), steps)

    def _applied(
        self, isa: Isa, places: Sequence[_Place], count: int, near: list[ir.Value] | None = None
    ) -> ir.Value:
        """Places as one vector after the first `count` steps; with `near` in their shorter form,
        and what is to be looked at for doubt goes there."""
        value = join(self.b, [place.row.accumulators[place.j] for place in places])
        for i, step in enumerate(self.steps[:count]):
            emitter, operands = step.emitter, self._operands(i, places)
            if near is None or not emitter.has_near:
                value = emitter.emit(self.b, isa, value, operands)
                continue
            quotient = emitter.near(self.b, value, operands)
            near += self.b.split(quotient, self.lanes)
            value = emitter.after(self.b, isa, quotient, operands)
        return value

    def _operands(self, i: int, places: Sequence[_Place]) -> list[Any]:
        """The operands of step i, prepared."""
        each = [self._prepared(i, place) for place in places]
        return [join(self.b, operand) for operand in zip(*each, strict=True)]

    def _prepared(self, i: int, place: _Place) -> Sequence[Any]:
        column = place.row.first + place.j
        return self.steps[i].operands(place.row.at, column, place.operands[i])

    def _scatter(self, tile: Tile, value: ir.Value, places: Sequence[_Place]) -> None:
        """Stores vectors that lie one after the other; those of one row together."""
        b, lanes = self.b, self.lanes
        start = 0
        while start < len(places):
            row, j = places[start].row, places[start].j
            end = start + 1
            while end < len(places) and places[end].row is row:
                end += 1
            part = b.shuffle(value, value, list(range(start * lanes, end * lanes)))
            valid = self.n if row.valid is None else row.valid - j * lanes
            b.store(part, tile, [*row.to, b.offset(row.column, j * lanes)], valid)
            start = end

    def apply(
        self, isa: Isa, value: ir.Value, at: Indices, j: int, row: Sequence[Sequence[Any]]
    ) -> ir.Value:
        """The first steps, those that `row` is for, on the panel's vector `j` of row `at`."""
        for step, ready in zip(self.steps, row, strict=False):
            operands = step.operands(at, j, ready)
            value = step.emitter.emit(self.b, isa, value, operands)
        return value

    def element(self, source: ir.Value, what: str, at: Indices, j: int) -> ir.Value:
        position = [*self.prefix, *at, self.columns[j]]
        return self.b.load(source, position, vec(self.lanes, what), self.n)


class _Prepared:
    """A step with its operands; prepared where none of them depends on the row."""

    def __init__(self, epilogue: Epilogue, step: Step, tensors: Iterator[ir.Value]) -> None:
        self.epilogue, self.step, self.emitter = epilogue, step, emitter(step)
        self.sources = [
            (how, what, epilogue.once(next(tensors), how, what)) for how, what in step.operands
        ]
        kinds = {how for how, _, _ in self.sources}
        self.fixed: list[Sequence[Any]] | None = None  # by vector of the panel
        if kinds <= {COLUMN, SCALAR}:
            count = len(epilogue.columns) if COLUMN in kinds else 1
            plain = [[self._of(how, s, j) for how, _, s in self.sources] for j in range(count)]
            self.fixed = [self.emitter.prepare(epilogue.b, operands) for operands in plain]

    def operands(self, at: Indices, j: int, ready: Sequence[Any]) -> Sequence[Any]:
        if self.fixed is not None:
            return self.fixed[j % len(self.fixed)]
        return self.emitter.prepare(
            self.epilogue.b,
            [
                self.epilogue.element(s, what, at, j) if how == ELEMENT else self._of(how, s, j)
                for (how, what, _), s in zip(self.sources, ready, strict=True)
            ],
        )

    @staticmethod
    def _of(how: str, source: Any, j: int) -> Any:
        return source[j] if how == COLUMN else source


def join(b: Builder, parts: Sequence[Any]) -> Any:
    """Vectors, or records of vectors, one after the other."""
    first = parts[0]
    if isinstance(first, ir.Value):
        return b.join(parts)
    values = [[getattr(part, f.name) for part in parts] for f in fields(first)]
    return type(first)(*(join(b, value) for value in values))
