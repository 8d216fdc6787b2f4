"""Integer arithmetic between codes as the lines of a kernel over rows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from jq.ir import Op, direction_of, integers, ir, maker, shape_of, short_kind
from jq.ir.arrays import OPS as PROGRAM
from jq.ir.ops.selection import combines
from jq.kernels import Line, RowProgram, Source
from jq.kernels.rowwise.row_program import MOST, NUMBER, OPS, RESULT, SHIFTS, by_element
from jq.passes.kernels.between._high_halves import with_high_halves
from jq.passes.kernels.between._ops import along_rows, cut, element_of, fuses, is_table, number_of

LEAST = 3  # ops that are worth a kernel
DEEP = 400  # ops of a region


class _NoRows(Exception):
    """A value of a region is neither a row's nor an element's."""


@dataclass
class Region:
    """The lines that codes are computed by. `shape` is that of the codes, `roots` are stored."""

    shape: tuple[int, ...]
    roots: Mapping[ir.Value, None]
    lines: list[Line] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    operands: list[ir.Value] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    known: dict[Any, int] = field(default_factory=dict)
    before: int = 0  # lines of other roots

    @staticmethod
    def of(root: ir.Value, roots: Mapping[ir.Value, None]) -> "Region | None":
        """None where there is no work, or not along rows, or each row has one number throughout."""
        shape = shape_of(root)
        if not shape or 0 in shape:
            return None
        region = Region(shape, roots)
        try:
            region._grow(root)
        except _NoRows:
            return None
        work = [line for line in region.lines if line.op in OPS and line.op != "convert"]
        little = len(work) < LEAST and all(line.op != "take" for line in region.lines)
        long = shape[-1] > MOST and any(line.op.startswith("reduce") for line in work)
        whole = by_element(region.lines, region.sources, region.columns)[-1]
        return None if little or long or not whole or not region.operands else region

    def also(self, root: ir.Value) -> None:
        """Computes another root of the same operands, after the one of the last line."""
        last = len(self.lines) - 1
        self.lines.append(Line(RESULT, (last,), self.lines[last].element))
        self.before = len(self.lines)
        self._grow(root)

    @property
    def alone(self) -> bool:
        """Every element of the codes depends on elements at its place alone."""
        return not any(line.op.startswith("reduce") for line in self.lines)

    @property
    def rows(self) -> int:
        return math.prod(self.shape[:-1])

    @property
    def columns(self) -> int:
        return self.shape[-1]

    def kernel(self, isa: str) -> tuple[RowProgram, list[ir.Value]]:
        """The kernel, and its operands but for the constants."""
        m, k, sources = self.rows, self.columns, list(self.sources)
        whole = all((s.rows, s.columns) == (m, k) for s, t in self._read() if not t)
        if whole and self.alone:
            m, k = cut(m * k)
            sources = [s if t else Source(s.element, m, k) for s, t in self._read()]
        if self.numbers:
            sources.append(Source("i64", 1, len(self.numbers)))
        lines = with_high_halves(self.lines)
        kernel = RowProgram(isa=isa, m=m, k=k, sources=tuple(sources), lines=lines)
        return kernel, self.operands

    def _read(self) -> list[tuple[Source, bool]]:
        """The sources, and whether each is a table."""
        tables = {line.number for line in self.lines if line.op == "take"}
        return [(s, i in tables) for i, s in enumerate(self.sources)]

    def constants(self) -> list[ir.Value]:
        """The operand with all numbers that are no part of the description."""
        return [PROGRAM.constant(np.array([self.numbers], np.int64))] if self.numbers else []

    def _grow(self, root: ir.Value) -> None:
        """Lines of everything that the root needs, operands first."""
        todo: list[tuple[ir.Value, bool]] = [(root, False)]
        while todo:
            value, ready = todo.pop()
            if value in self.known:
                continue
            inner = self._inner(value) if value == root or value not in self.roots else None
            if inner is None or (len(self.lines) - self.before > DEEP and value != root):
                self.known[value] = self._source(value)
            elif ready or not inner:
                self.known[value] = self._line(value.owner, inner)
            else:
                todo.append((value, True))
                todo += [(v, False) for v in inner]

    def _inner(self, value: ir.Value) -> list[ir.Value] | None:
        """The operands that are lines too; None for what is read, not computed."""
        op = maker(value)
        if op is None:
            return None
        kind, operands, number = short_kind(op), list(op.operands), number_of(op)
        if not fuses(op) or (number is not None and kind != "constant"):
            return None if number is None else []
        if kind == "gather":
            return operands[1:] if self._form(value) and is_table(op) else None
        if kind == "reduce":
            return operands[:1] if self._form(operands[0]) == "wide" and along_rows(op) else None
        if kind == "reshape":
            return operands if self._form(value) == self._form(operands[0]) else None
        if kind == "broadcast_in_dim":
            return operands if self._follows(op) else None
        return operands if self._form(value) else None

    def _form(self, value: ir.Value) -> str | None:
        """`wide`: all elements, in rows; `row`: one number a row; None: neither."""
        shape = shape_of(value)
        if math.prod(shape) == self.rows * self.columns and shape and shape[-1] == self.columns:
            return "wide"
        return "row" if math.prod(shape) == self.rows else None

    def _follows(self, op: Op) -> bool:
        """A broadcast along the rows, of one number a row that has been computed; or of nothing."""
        small, dims = op.operands[0], integers(op, "broadcast_dimensions")
        sizes, shape = shape_of(small), shape_of(op.results[0])
        made = maker(small)
        if made is None or not fuses(made) or small in self.roots:
            return False
        if self._form(op.results[0]) is None or any(a >= b for a, b in pairwise(dims)):
            return False
        if math.prod(sizes) == math.prod(shape):
            return self._form(small) == self._form(op.results[0])
        lead = [(d, n) for d, n in zip(dims, sizes, strict=True) if n > 1]
        whole = [(d, n) for d, n in enumerate(shape[:-1]) if n > 1]
        return self._form(small) == "row" and self._form(op.results[0]) == "wide" and lead == whole

    def _line(self, op: Op, inner: Sequence[ir.Value]) -> int:
        """The line of an op whose operands are known."""
        kind, result = short_kind(op), op.results[0]
        number = number_of(op)
        if number is not None:
            return self._constant(number, element_of(result))
        of = [self.known[v] for v in inner]
        if kind in ("reshape", "broadcast_in_dim"):
            return of[0]
        if kind == "gather":
            table = op.operands[0]
            self.operands.append(table)
            self.sources.append(Source(element_of(table), 1, shape_of(table)[0]))
            return self._add("take", of, result, len(self.sources) - 1)
        if kind == "reduce":
            return self._add(f"reduce_{combines(op)}", of, result)
        if kind == "compare":
            return self._add(f"compare_{direction_of(op)}", of, result)
        made = maker(inner[1]) if kind in SHIFTS else None
        amount = None if made is None else number_of(made)
        safe = amount is not None and 0 <= amount < int(element_of(result)[1:])
        return self._add(kind, of, result, int(safe))

    def _add(self, op: str, of: Sequence[int], result: ir.Value, number: int = 0) -> int:
        self.lines.append(Line(op, tuple(of), element_of(result), number))
        return len(self.lines) - 1

    def _constant(self, number: int, element: str) -> int:
        line = Line("constant", (), element, number)
        # Likely the same in all layers: 0, powers of two and what is one below them.
        size = abs(number)
        if size & (size - 1) and (number < 0 or (number + 1) & number):
            if number not in self.numbers:
                self.numbers.append(number)
            line = Line(NUMBER, (), element, self.numbers.index(number))
        if line not in self.lines:
            self.lines.append(line)
        return self.lines.index(line)

    def _source(self, value: ir.Value) -> int:
        """A value that is read: as it lies, or what a broadcast repeats."""
        op, read, shape = maker(value), value, shape_of(value)
        every, rows, columns = 1, self.rows, self.columns
        repeats = op is not None and short_kind(op) == "broadcast_in_dim"
        if op is not None and repeats and (found := self._repeated(op)):
            read, (rows, columns, every) = op.operands[0], found
        elif self._form(value) == "row":
            columns = 1
        elif self._form(value) is None:
            raise _NoRows(shape)
        element = "i8" if element_of(read) == "i1" else element_of(read)
        self.operands.append(read)
        self.sources.append(Source(element, rows, columns, every))
        self.lines.append(Line("source", (), element, len(self.sources) - 1))
        if element == element_of(value):
            return len(self.lines) - 1
        return self._add("convert", [len(self.lines) - 1], value)

    def _repeated(self, op: Op) -> tuple[int, int, int] | None:
        """Rows and columns of what a broadcast repeats, and how many rows of the kernel read one;
        None where its rows do not follow each other so."""
        small, dims = op.operands[0], integers(op, "broadcast_dimensions")
        shape = shape_of(op.results[0])
        if self._form(op.results[0]) != "wide" or list(dims) != sorted(dims):
            return None
        kept = [d for d, n in zip(dims, shape_of(small), strict=True) if n > 1]
        last = len(shape) - 1
        lead = [d for d in kept if d != last]
        between = set(range(lead[0], lead[-1])) - set(lead) if lead else set()
        if any(shape[d] > 1 for d in between):
            return None
        rows = math.prod(shape[d] for d in lead)
        every = math.prod(shape[lead[-1] + 1 : last]) if lead else 1
        return rows, self.columns if last in kept else 1, every
