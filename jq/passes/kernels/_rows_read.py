"""Rows of a value that a program reads, found from its results back.

A value's elements are `batch * length` rows of equal size, one after the other, whatever its
shape: reshapes leave rows where they are. Rows stop being read where

    x * mask            the mask is 0: of a kernel's result, which is made 0 there, so that no NaN
                        comes back
    select(mask, x, y)  the other one is taken
    x[:, :n]            they are after the first n
    attention           a mask hides them as keys and values (`IntegerAttention.spread`)

and are read again where anything else reads the value."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jq.ir import CONTROL, Op, Program, dtype_of, evaluate, integers, ir, maker, shape_of
from jq.kernels import IntegerAttention, Kernel, Sequences
from jq.passes.kernels._kernel import called, declarations

MASK_OPS = 64  # a mask that takes more to compute is none


@dataclass(frozen=True)
class First:
    """The first `count` rows of every sequence are read."""

    count: int


@dataclass(frozen=True)
class Nonzero:
    """Rows are read where a mask of [batch * length] elements is not 0; `negated`, where it is."""

    mask: ir.Value
    negated: bool = False


@dataclass(frozen=True)
class Shown:
    """Rows are read where a mask is no more than `spread` below its largest number."""

    mask: ir.Value
    spread: float


@dataclass(frozen=True)
class Rows:
    """The rows that are read of a value; without reasons none."""

    batch: int = 0
    length: int = 0
    reasons: tuple[First | Nonzero | Shown, ...] = ()

    def are_of(self, kernel: Kernel) -> bool:
        """True if a kernel's rows are these, one by one."""
        rows = kernel.results[0].shape[:-1]
        return rows in ((self.batch * self.length,), (self.batch, self.length))


Read = Rows | None  # None: all rows
NOTHING = Rows()


def joined(first: Read, second: Read) -> Read:
    """The rows that either of two readers reads."""
    if first == NOTHING or second == NOTHING:
        return second if first == NOTHING else first
    if first is None or second is None:
        return None
    if (first.batch, first.length) != (second.batch, second.length):
        return None
    more = tuple(reason for reason in second.reasons if reason not in first.reasons)
    return Rows(first.batch, first.length, first.reasons + more)


class Reads:
    """The rows that are read of every value of the main function.

    Attributes:
        kernels: the kernels that its ops call.
        filled: ops whose results have to be 0 in rows that are not read."""

    def __init__(self, program: Program) -> None:
        self.program, self.filled = program, set[Any]()
        ops = list(program.body.operations)
        declared = declarations(program)
        calls = ((op.operation, called(declared, op)) for op in ops)
        self.kernels = {op: kernel for op, kernel in calls if kernel is not None}
        self._found: dict[ir.Value, Read] = {}
        for op in reversed(ops):  # readers first
            for value in op.results:
                self._found[value] = self._join(self._use(use) for use in value.uses)

    def of(self, op: Op) -> Read:
        """The rows that are read of an op's results."""
        return self._join(self._found[value] for value in op.results)

    @staticmethod
    def _join(reads: Any) -> Read:
        found: Read = NOTHING
        for read in reads:
            found = joined(found, read)
        return found

    def _use(self, use: Any) -> Read:
        """The rows that one reader reads."""
        op = use.owner.operation
        if op.parent != self.program.main.operation:
            return None
        if len(op.results) and self.of(op) == NOTHING:
            return NOTHING
        rule = _RULES.get(op.name)
        return rule(self, op, use.operand_number) if rule else None

    # Rules: what an op reads of its operand of some number

    def _same(self, op: Op, number: int) -> Read:
        """Ops whose result has the rows of its operands, but for those that are one number."""
        whole, part = shape_of(op.results[0]), shape_of(op.operands[number])
        return self.of(op) if math.prod(part) == math.prod(whole) else None

    def _multiply(self, op: Op, number: int) -> Read:
        value = op.operands[number]
        shown = self._masked(shape_of(value), op.operands[1 - number])
        maker = self._maker(value)
        if shown is None or maker is None or dtype_of(value).kind in "biu":
            return self._same(op, number)
        if self.kernels[maker].by_sequences(Sequences(shown.length, fill=True)) is None:
            return self._same(op, number)
        self.filled.add(maker)
        return shown

    def _select(self, op: Op, number: int) -> Read:
        if number == 0 or shape_of(op.operands[0]) != shape_of(op.operands[1]):
            return self._same(op, number)
        found = self._masked(shape_of(op.operands[1]), op.operands[0], negated=number == 2)
        return found or self._same(op, number)

    def _slice(self, op: Op, number: int) -> Read:
        shape, limits = shape_of(op.operands[0]), integers(op, "limit_indices")
        if len(shape) < 3 or limits[1] == shape[1]:
            return None
        return Rows(shape[0], shape[1], (First(limits[1]),))

    def _transpose(self, op: Op, number: int) -> Read:
        """Rows stay where they are, or another transpose brings them back."""
        order, uses = integers(op, "permutation"), [u for v in op.results for u in v.uses]
        return self._join(self._moved(use.owner.operation, order) for use in uses)

    def _moved(self, op: Op, permutation: Sequence[int]) -> Read:
        if op.name != "stablehlo.transpose" or op.parent != self.program.main.operation:
            return None
        back = [permutation[axis] for axis in integers(op, "permutation")]
        return self.of(op) if back == sorted(back) else None

    def _call(self, op: Op, number: int) -> Read:
        kernel = self.kernels.get(op)
        if kernel is None:
            return None
        if isinstance(kernel, IntegerAttention) and number in (1, 2):
            return self._shown(op, kernel)
        read = self.of(op)
        if read is None or number not in kernel.row_operands or not read.are_of(kernel):
            return None
        return read

    def _shown(self, op: Op, kernel: IntegerAttention) -> Read:
        """The keys and values that are shown."""
        factors = evaluate(self.program, op.operands[4])
        if not kernel.skips or factors is None or not self._early(op.operands[5]):
            return None
        spread = kernel.spread(float(factors[0]))
        return Rows(kernel.batch, kernel.keys, (Shown(op.operands[5], spread),))

    # Masks

    def _masked(self, shape: Sequence[int], mask: ir.Value, negated: bool = False) -> Rows | None:
        """The rows of a value [batch, length, ...] that a mask of the same shape does not hide."""
        owner = maker(mask, "stablehlo.broadcast_in_dim")
        if len(shape) < 3 or owner is None:
            return None
        source, axes = owner.operands[0], integers(owner, "broadcast_dimensions")
        wide = [axis for axis, n in zip(axes, shape_of(source), strict=True) if n > 1]
        if wide != [axis for axis in (0, 1) if shape[axis] > 1] or not self._early(source):
            return None
        return Rows(shape[0], shape[1], (Nonzero(source, negated),))

    def _early(self, value: ir.Value) -> bool:
        """True if a mask is computed from inputs, in few ops, and not constant."""
        return slice_of(value) is not None and evaluate(self.program, value) is None

    def _maker(self, value: ir.Value) -> Any:
        """The op whose kernel has a value as a result, perhaps reshaped."""
        while reshape := maker(value, "stablehlo.reshape"):
            value = reshape.operands[0]
        op = maker(value)
        return op.operation if op is not None and op.operation in self.kernels else None


def slice_of(value: ir.Value) -> list[Any] | None:
    """The ops that a value is computed by; None where they are many, or one of them runs others."""
    ops: dict[Any, None] = {}
    values = [value]
    while values:
        owner = maker(values.pop())
        if owner is None or owner.operation in ops:
            continue
        op = owner.operation
        if op.name == "func.call" or op.name in CONTROL or len(ops) == MASK_OPS:
            return None
        ops[op] = None
        values += owner.operands
    return list(ops)


_SAME = ("reshape", "convert", "add", "subtract", "xor", "maximum", "minimum", "negate", "clamp")
_RULES: dict[str, Callable[[Reads, Any, int], Read]] = {
    **{f"stablehlo.{name}": Reads._same for name in _SAME},
    "stablehlo.multiply": Reads._multiply,
    "stablehlo.select": Reads._select,
    "stablehlo.slice": Reads._slice,
    "stablehlo.transpose": Reads._transpose,
    "func.call": Reads._call,
}
