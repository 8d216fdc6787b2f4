"""The part of a block that could compute in another order of axes, and which of it had better.

A region grows from one transpose through every op that can follow its order (`jq.ir.ops.movement`).
What each of its values would be stored as is then known; each op is to take it on or not. A
transpose stands wherever that changes along a value, and one that is there already goes where it
does not: the fewest bytes that are transposed are a minimum cut between what cannot move and the
transposes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from jq.ir import Op, Program, dtype_of, integers, ir, kind_of, maker, shape_of
from jq.ir.hoist import block_of
from jq.ir.ops.lookup import takes_any_order
from jq.ir.ops.movement import RESULT, Order, Orders, inverse, is_moved, significant
from jq.ir.ops.reordered import orders_of
from jq.passes.prepare.transposes._cut import Cut

TRANSPOSE = "stablehlo.transpose"


@dataclass
class Facts:
    """Facts about a whole program.

    Attributes:
        body: the outermost block.
        known: values in the body that no input reaches (values inside of loops may depend on all).
        dead: ops that moves have left without readers."""

    body: ir.Block
    known: set[ir.Value] = field(default_factory=set)
    dead: set[ir.Operation] = field(default_factory=set)

    @staticmethod
    def of(program: Program) -> "Facts":
        known = set(list(program.body.arguments)[len(program.inputs) :])
        for op in program.body.operations:
            plain = not list(op.regions) or kind_of(op).startswith("stablehlo.reduce")
            if plain and known.issuperset(op.operands):
                known.update(op.results)
        return Facts(program.body, known)

    def uses(self, value: ir.Value) -> list[ir.OpOperand]:
        return [use for use in value.uses if use.owner.operation not in self.dead]

    def readers(self, value: ir.Value) -> list[ir.Operation]:
        return [use.owner.operation for use in self.uses(value)]


@dataclass
class Region:
    """Attributes:
    block: where all of its ops are.
    values: the order that each value would be stored in.
    ops: the orders that each op would compute in."""

    block: ir.Block
    facts: Facts
    values: dict[ir.Value, Order] = field(default_factory=dict)
    ops: dict[ir.Operation, Orders] = field(default_factory=dict)

    @staticmethod
    def around(transpose: Op, facts: Facts, *, behind: bool) -> "Region":
        """The region to store as the operand is (`behind`), or in front of it as the result is."""
        order = integers(transpose, "permutation")
        region = Region(block_of(transpose.results[0]), facts)
        if behind:
            region._grow(transpose.results[0], inverse(order))
        else:
            region._grow(transpose.operands[0], order)
        return region

    def known(self, value: ir.Value) -> bool:
        """True if weights alone make a value: it costs nothing in any order, but in a loop, which
        would make it every time."""
        return value in self.facts.known and self.block == self.facts.body

    def _grow(self, value: ir.Value, order: Order) -> None:
        self.values[value] = order
        waiting = [value]
        while waiting:
            value = waiting.pop()
            if not is_moved(shape_of(value), self.values[value]):
                continue
            op = maker(value)
            readers = [] if self.known(value) else self.facts.readers(value)
            for other in (*(() if op is None else (op.operation,)), *readers):
                waiting += self._join(other, value)

    def _join(self, op: ir.Operation, value: ir.Value) -> list[ir.Value]:
        """Takes in an op that a value belongs to; the values that are new with it."""
        if op in self.ops or kind_of(op) == TRANSPOSE or not self._here(op):
            return []
        results, operands = list(op.results), list(op.operands)
        if results and all(self.known(v) for v in results):
            return []
        index = RESULT if value in results else operands.index(value)
        orders = orders_of(op, index, self.values[value])
        if orders is None:
            return []
        pairs = zip((*operands, *results), (*orders.operands, *orders.results), strict=True)
        joined: dict[ir.Value, Order] = {}
        for other, order in pairs:
            if self.known(other):
                continue  # each reader gets it as it wants it
            there = self.values.get(other, joined.get(other))
            if order is None:
                order = tuple(range(len(shape_of(other))))
            if there is None:
                joined[other] = order
            elif significant(shape_of(other), there) != significant(shape_of(other), order):
                return []
        self.ops[op] = orders
        self.values |= joined
        return list(joined)

    def transposes(self) -> Iterable[ir.Operation]:
        """Those at its edges that it would make unnecessary."""
        for value in self.values:
            op = maker(value, TRANSPOSE)
            if op is not None and self.ends_at(op.operation):
                yield op.operation
            yield from filter(self.begins_at, self.facts.readers(value))

    def ends_at(self, op: ir.Operation) -> bool:
        """True if the result of a transpose would be stored as its operand is."""
        result = op.results[0]
        order = inverse(integers(op, "permutation"))
        return self._turns(op) and self._stored(result, order)

    def begins_at(self, op: ir.Operation) -> bool:
        """True if the operand of a transpose would be stored as its result is."""
        return self._turns(op) and self._stored(op.operands[0], integers(op, "permutation"))

    def _here(self, op: ir.Operation) -> bool:
        return len(op.results) > 0 and block_of(op.results[0]) == self.block

    def _turns(self, op: ir.Operation) -> bool:
        return self._here(op) and is_turn(op)

    def _stored(self, value: ir.Value, order: Order) -> bool:
        there, shape = self.values.get(value), shape_of(value)
        return there is not None and significant(shape, there) == significant(shape, order)

    def chosen(self) -> set[ir.Operation]:
        """The ops, and the transposes at the edges, that take on the order."""
        cut = Cut()
        for op in set(self.transposes()):
            if not self.known(op.operands[0]) and not self._absorbed(op):
                cut.prefer(op, cost(op.results[0]))
        for value, order in self.values.items():
            if self.known(value) or not is_moved(shape_of(value), order):
                continue
            op = maker(value)
            own = op is not None and (op.operation in self.ops or self.ends_at(op.operation))
            made = op.operation if op is not None and own else None
            readers = {
                reader if reader in self.ops or self.begins_at(reader) else None
                for reader in self.facts.readers(value)
            }
            cut.connect(made, readers, cost(value))
        return cut.preferred()

    def _absorbed(self, op: ir.Operation) -> bool:
        """True if a product is the next op outside of the region: kernels of attention, say, read
        and write in the order that transposes around them give."""
        made = maker(op.operands[0])
        if self.ends_at(op):
            return made is not None and takes_any_order(made)
        return all(takes_any_order(reader) for reader in self.facts.readers(op.results[0]))


def is_turn(op: ir.Operation) -> bool:
    """True if an op is a transpose that moves more than axes of size 1."""
    return kind_of(op) == TRANSPOSE and is_moved(
        shape_of(op.operands[0]), integers(op, "permutation")
    )


def cost(value: ir.Value) -> int:
    """Bytes that a transpose moves."""
    return math.prod(shape_of(value)) * max(1, dtype_of(value).itemsize)
