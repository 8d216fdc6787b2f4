"""Origins of values: they tell if two values may share memory that one is written into."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from jaxlib.mlir import ir

# What a value is made from: one bit for each argument of the blocks that it stands in.
Origins = defaultdict[ir.Value, int]
UNREAD = 1  # the bit of what is made from nothing, as an iota; constants have none
_FRESH = 63  # bits of values with memory of their own, which several of them may share


def origins(block: ir.Block) -> Origins:
    """The origins of each value of a block, and of those in it."""
    walk = Walk()
    walk.follow(block, [0] * len(block.arguments), UNREAD)
    return walk.known


class Walk:
    """One way through a block, its regions, and the functions that it calls.

    Attributes:
        functions: the first block of each, by name; without any, a call is an op like others.
        alone: whether the results of an op count as made from nothing else: a compiler computes
            them before what reads them, in memory of their own.
        seen: is told every op, when `known` has its operands.
        left: ops that may be visited, before it is an `OverflowError`.
    """

    def __init__(
        self,
        functions: Mapping[str, ir.Block] | None = None,
        alone: Callable[[ir.Operation], bool] = lambda op: False,
        seen: Callable[[ir.Operation, Origins], None] = lambda op, known: None,
        most: float = math.inf,
    ) -> None:
        self.known: Origins = defaultdict(int)
        self.functions, self.alone, self.seen = functions or {}, alone, seen
        self.left, self.count = most, 0

    def start(self, block: ir.Block) -> None:
        self.follow(block, [0] * len(block.arguments), 1 + _FRESH)

    def follow(self, block: ir.Block, starts: Sequence[int], first: int) -> int:
        """Fills `known` for all values of a block; gives back what its ops read from outside.

        `starts` is what is known of the values that its arguments begin with, `first` the bit of
        the first of them. Outside of the block those bits are free again, so that they stay few.
        """
        for i, (value, start) in enumerate(zip(block.arguments, starts, strict=True)):
            self.known[value] = start | 1 << first + i
        read = 0
        for op in block.operations:
            self.left -= 1
            if self.left < 0:
                raise OverflowError
            self.seen(op.operation, self.known)
            mine = self.read(op.operation, first + len(block.arguments))
            given = self.fresh() if self.alone(op.operation) else mine
            for result in op.results:
                self.known[result] = given
            read |= mine
        return read & (1 << first) - 1

    def fresh(self) -> int:
        self.count += 1
        return 1 << 1 + self.count % _FRESH

    def read(self, op: ir.Operation, free: int) -> int:
        if op.name == "stablehlo.constant":
            return 0
        operands = [self.known[value] for value in op.operands]
        read = 0 if operands else UNREAD
        for origin in operands:
            read |= origin
        for block in self.blocks(op):
            same = len(block.arguments) == len(operands)  # a loop's carries, or a function's
            read |= self.follow(block, operands if same else [0] * len(block.arguments), free)
        return read

    def blocks(self, op: ir.Operation) -> Iterator[ir.Block]:
        for region in op.regions:
            yield from region.blocks
        if op.name == "func.call":
            name = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
            if name in self.functions:
                yield self.functions[name]
