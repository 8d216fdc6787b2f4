"""Integer arithmetic on rows, as a program says it: one dispatch from codes to codes.

    for block of rows in workgroups:
      for row in block:
        for each stage: a sweep along the row, in vectors, which ends in sums and maxima
                        numbers of the row that follow from them, as scalars
        a last sweep, which stores the codes

Tables, rescales, softmax, normalizations and sums of two tensors of integer-only programs are all
this: the lines are the ops of the integer level, so the bits are the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from jq.base.errors import InternalError
from jq.kernels.rowwise.description import Rows
from jq.kernels.tensor import TensorType

SOURCE, CONSTANT, NUMBER, TAKE = "source", "constant", "number", "take"
RESULT, MULTIPLY_HIGH, CONVERT = "result", "multiply_high", "convert"
REDUCTIONS = ("reduce_add", "reduce_maximum", "reduce_minimum")
SHIFTS = ("shift_left", "shift_right_logical", "shift_right_arithmetic")
MOST = 2048  # elements of a row that is kept while later sweeps read it
CHEAP = 6  # lines that are computed again instead of kept
NAMES = """
add subtract multiply divide maximum minimum abs negate and or xor not count_leading_zeros
select convert compare_EQ compare_NE compare_LT compare_LE compare_GT compare_GE
"""
OPS = frozenset((*NAMES.split(), *REDUCTIONS, *SHIFTS))


@dataclass(frozen=True)
class Source:
    """An operand [rows, columns]: row r of the kernel reads row `r // every % rows` of it; one
    column stands for all. A table is [1, entries]."""

    element: str
    rows: int
    columns: int
    every: int = 1


@dataclass(frozen=True)
class Line:
    """An op of StableHLO, without its prefix, on the results of earlier lines.

    Attributes:
        op: or `source`, `constant`, `number` (a column of the last source, which is [1, n] i64),
            `take` (of a table, an index that is clamped), `compare_LT`, `reduce_add`,
            `multiply_high` (of i32 the low bits of `(i64(a) * b + 2^30) >> 31`), and `result`: a
            line that is stored besides the last one.
        of: numbers of the lines that it reads.
        element: of its result: `i1` to `i64`.
        number: of a constant, the source, the column, or a take's table; 1 of a shift whose amount
            is known to be within the element."""

    op: str
    of: tuple[int, ...] = ()
    element: str = "i32"
    number: int = 0


def by_element(lines: Sequence[Line], sources: Sequence[Source], k: int) -> tuple[bool, ...]:
    """True for each line that has a number for every one of the `k` elements of a row."""
    found: list[bool] = []
    for line in lines:
        if line.op == SOURCE:
            found.append(sources[line.number].columns > 1 or k == 1)
        else:
            found.append(line.op not in REDUCTIONS and any(found[i] for i in line.of))
    return tuple(found)


class RowProgram(Rows):
    """Codes [M, K] of each `result` and of the last line, of the sources. Lines have one number an
    element of a row, or one a row: those that depend on no other."""

    sources: tuple[Source, ...]
    lines: tuple[Line, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.wide[-1]:
            raise InternalError(f"{self.label} has no rows")
        if any(self.stages[i] != self.stages[-1] or not self.wide[i] for i in self.stored):
            raise InternalError(f"results of {self.label} are not of the last sweep")
        if self.kept and self.k > MOST:
            raise InternalError(f"rows of {self.label} are too long to be kept")

    @property
    def operands(self) -> tuple[TensorType, ...]:
        return tuple(TensorType((s.rows, s.columns), s.element) for s in self.sources)

    @property
    def results(self) -> tuple[TensorType, ...]:
        return tuple(TensorType((self.m, self.k), self.lines[i].element) for i in self.stored)

    @property
    def stored(self) -> list[int]:
        """The lines that are results."""
        return [*(line.of[0] for line in self.lines if line.op == RESULT), len(self.lines) - 1]

    @cached_property
    def wide(self) -> tuple[bool, ...]:
        return by_element(self.lines, self.sources, self.k)

    @cached_property
    def stages(self) -> tuple[int, ...]:
        """Number of sweeps, for each line, that end before it is known."""
        found: list[int] = []
        for line in self.lines:
            stage = max((found[i] for i in line.of), default=0)
            found.append(stage + (line.op in REDUCTIONS))
        return tuple(found)

    @cached_property
    def kept(self) -> frozenset[int]:
        """Lines that are stored by the sweep that computes them, since later ones read them."""
        kept: set[int] = set()
        for i, line in enumerate(self.lines):
            for j in line.of:
                ends = self.stages[i] - (line.op in REDUCTIONS)
                if self.wide[j] and self.stages[j] < ends and self._cost(j) > CHEAP:
                    kept.add(j)
        return frozenset(kept)

    def _cost(self, number: int) -> int:
        """Lines of its own stage that a line needs."""
        seen, todo = set[int](), [number]
        while todo:
            i = todo.pop()
            if i in seen or not self.wide[i] or self.lines[i].op == SOURCE:
                continue
            seen.add(i)
            todo += self.lines[i].of
        return len(seen)
