"""Memory that values share: their origins, which tell if two may share what one is written into,
and the options with which XLA does not get it wrong."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from jq.ir.types import shape_of
from jq.ir.values import functions_of, maker, walk

# What a value is made from: one bit for each argument of the blocks that it stands in.
Origins = defaultdict[ir.Value, int]
UNREAD = 1  # the bit of what is made from nothing, as an iota; constants have none
_FRESH = 63  # bits of values with memory of their own, which several of them may share


def origins(block: ir.Block) -> Origins:
    """The origins of each value of a block, and of those in it."""
    walk = Walk()
    walk.start(block)
    return walk.known


class Walk:
    """One way through a block, its regions, and the functions that it calls.

    Attributes:
        functions: the first block of each, by name; without any, a call is an op like others.
        alone: whether the results of an op count as made from nothing else: a compiler computes
            them before what reads them, in memory of their own.
        seen: is told every op, when `known` has its operands.
        left: ops that may be visited, before it is an `OverflowError`."""

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
        the first of them. Outside of the block those bits are free again, so that they stay few."""
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
            if op.operation.name == WRITES[0] and op.operands[0].type != op.operands[1].type:
                given = self.known[op.operands[0]] | self.fresh()  # rows lie elsewhere than this
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


# Options with which XLA computes on the CPU what a program says.
#
# They go with each compilation; nothing of the process changes, which may be a user's own.
#
# - jaxlib 0.10 fuses sums with what they add up into kernels of YNNPACK that crash at seven axes,
#   and have wrong numbers after a product of matrices (jax-ml/jax 39103, 39257 and 40412).
# - What is written into a tensor and read from that same tensor is computed while it is written,
#   where a reshape stands between (openxla/xla 49176): such programs are compiled without fusions.
# - jaxlib 0.11 and newer take a time that doubles with each step of integers that a gather's places
#   are made of, where a step reads the one before twice: such programs, too.
#
# `tests/traps/test_xla.py` shows all of them.
NO_LIBRARY = {"xla_cpu_experimental_ynn_fusion_type": ""}
DISABLED = "xla_disable_hlo_passes"
WRITES = ("stablehlo.dynamic_update_slice", "stablehlo.scatter")
INDEXED = {"stablehlo.gather": 1, "stablehlo.dynamic_slice": 1}  # first operand that is a place
MANY = 1 << 10  # ways from what is given to a place
MOST = 200_000  # ops, each as often as its function is called


def xla_options(module: ir.Module, **others: str) -> dict[str, str]:
    """XLA's options by name, as `compiler_options` of `jax.jit` takes them; `others` besides."""
    apart = _overwritten(module) or _entangled(module)
    without = ["fusion"] * apart + [others[d] for d in others if d == DISABLED]
    return NO_LIBRARY | others | ({DISABLED: ",".join(without)} if without else {})


def _overwritten(module: ir.Module) -> bool:
    """True if anything is written into a tensor that it may itself be made from."""
    functions = functions_of(module).items()
    blocks = {name: f.entry_block for name, f in functions if not f.is_external}
    if not any(op.operation.name in WRITES for block in blocks.values() for op in walk(block)):
        return False
    overwritten: list[ir.Operation] = []

    def seen(op: ir.Operation, known: Origins) -> None:
        if op.name in WRITES and _reads_itself(op, known):
            overwritten.append(op)

    try:
        Walk(blocks, _product, seen, MOST).start(blocks["main"])
    except OverflowError:  # calls of calls: nobody knows
        return True
    return bool(overwritten)


def _entangled(module: ir.Module) -> bool:
    """True if many ways lead to the places that a gather or a slice reads."""
    for function in functions_of(module).values():
        if function.is_external:
            continue
        ways: dict[ir.Value, int] = {}
        for op in walk(function.entry_block):
            operands = list(op.operands)
            first = INDEXED.get(op.operation.name)
            if first is not None and any(ways.get(v, 1) > MANY for v in operands[first:]):
                return True
            number = min(sum(ways.get(v, 1) for v in operands), 2 * MANY)
            ways.update(dict.fromkeys(op.results, max(number, 1)))
    return False


def _reads_itself(op: ir.Operation, known: Origins) -> bool:
    tensors, updates = _operands(op)
    read = 0
    for value in updates:
        read |= known[value]
    return any(known[_first(value)] & read for value in tensors)


def _operands(op: ir.Operation) -> tuple[list[ir.Value], list[ir.Value]]:
    """The tensors that are written into, and those that are written."""
    values = list(op.operands)
    if op.name == "stablehlo.scatter":
        count = len(values) // 2  # tensors, one tensor of places, updates
        return values[:count], values[count + 1 :]
    return values[:1], values[1:2]


def _first(value: ir.Value) -> ir.Value:
    """The tensor that was there before all that was written into it: it has its memory still."""
    while (op := maker(value, *WRITES)) is not None:
        value = op.operands[ir.OpResult(value).result_number]
    return value


def _product(op: ir.Operation) -> bool:
    """True if an op is a product of matrices, which no fusion takes in. A sum of one is none."""
    if op.name != "stablehlo.dot_general":
        return False
    numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    shape = shape_of(op.operands[0])
    return prod(shape[axis] for axis in numbers.lhs_contracting_dimensions) > 1
