"""Building blocks of patterns: the kind of an op, the op that makes a value, the ops that read it,
and walks over the ops of a block."""

from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from typing import Any, Protocol, TypeVar

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

T = TypeVar("T")
LOOP, BRANCHES = "stablehlo.while", ("stablehlo.case", "stablehlo.if")
CONTROL = (LOOP, *BRANCHES)  # their regions may read any value


class Op(Protocol):
    """An op, as patterns see it. What its dialect calls its operands and attributes (`op.lhs`,
    `op.permutation`) can be read from it too, and is not typed."""

    @property
    def operation(self) -> ir.Operation: ...
    @property
    def operands(self) -> MutableSequence[ir.Value]: ...
    @property
    def results(self) -> Sequence[ir.Value]: ...
    @property
    def result(self) -> ir.Value: ...
    @property
    def attributes(self) -> ir.OpAttributeMap: ...
    @property
    def regions(self) -> Sequence[ir.Region]: ...
    @property
    def location(self) -> ir.Location: ...

    def __getattr__(self, name: str) -> Any: ...


def kind_of(op: Op) -> str:
    """The op's name; a composite's own name."""
    if op.operation.name == "stablehlo.composite":
        return ir.StringAttr(op.attributes["name"]).value
    return str(op.operation.name)


def short_kind(op: Op) -> str:
    """`kind_of` without the name of StableHLO."""
    return kind_of(op).removeprefix("stablehlo.")


def maker(value: ir.Value, *kinds: str) -> Op | None:
    """The op that makes a value, if it is of one of these kinds (of any, where none are given).

    None for what an op of another kind makes, and for the argument of a block: an input, a weight,
    or what a loop carries."""
    op = value.owner
    return None if isinstance(op, ir.Block) or (kinds and kind_of(op) not in kinds) else op


def users(value: ir.Value) -> list[Op]:
    """The ops that read a value, once for each operand that it is."""
    return [use.owner for use in value.uses]


def only_user(value: ir.Value, *kinds: str) -> Op | None:
    """The op that reads a value, if one alone does, and once, and it is of one of these kinds."""
    readers = users(value)
    return None if len(readers) != 1 or (kinds and kind_of(readers[0]) not in kinds) else readers[0]


def is_read(*values: ir.Value) -> bool:
    return any(True for value in values for _ in value.uses)


def reached(
    starts: Iterable[T], follow: Callable[[T], Iterable[T]], most: int | None = None
) -> dict[T, None]:
    """All that `follow` leads to, again and again, each once: the starts first, then what is
    nearest; no more than `most`."""
    found, todo = dict[T, None](), list(starts)
    for item in todo:  # which grows
        if item not in found and (most is None or len(found) < most):
            found[item] = None
            todo += follow(item)
    return found


def operands_of(value: ir.Value, *kinds: str) -> Sequence[ir.Value]:
    """The operands of the op that makes a value, if it is of one of these kinds (`maker`)."""
    op = maker(value, *kinds)
    return () if op is None else list(op.operands)


def handed_on(op: Op) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Each value that a loop or a branch hands on, behind the one that it becomes: a result, or an
    argument of a loop's blocks. None of another op."""
    loop, blocks = op.operation.name == LOOP, [region.blocks[0] for region in op.regions]
    if not loop and op.operation.name not in BRANCHES:
        return
    ends = [list(last_of(block).operands) for block in blocks[int(loop) :]]
    for source in [list(op.operands), *ends] if loop else ends:
        for target in [op.results, *(block.arguments for block in blocks if loop)]:
            yield from zip(target, source, strict=True)


def combiner(op: Op) -> str:
    """The one op of both arguments that the function of a reduction or a scatter is, without the
    name of StableHLO; empty for any other function."""
    block = op.regions[0].blocks[0]
    first, *others = (inner.operation for inner in block.operations)
    both = len(first.operands) == 2 and set(first.operands) == set(block.arguments)
    alone = len(others) == 1 and list(others[0].operands) == list(first.results)
    return first.name.removeprefix("stablehlo.") if both and alone else ""


def functions_of(module: ir.Module) -> dict[str, func.FuncOp]:
    """The functions of a module by their names, in order; the caller may erase them."""
    return {op.name.value: op for op in module.body.operations if isinstance(op, func.FuncOp)}


def last_of(block: ir.Block) -> Op:
    """The op that ends a block: its operands are what the block gives."""
    return block.operations[len(block.operations) - 1]


def walk(block: ir.Block) -> Iterator[ir.OpView]:
    """Ops of a block and of all regions inside, parents before children.

    The caller may erase the op it was given, unless that op has regions."""
    for op in list(block.operations):
        inner = [b for region in op.regions for b in region.blocks]
        yield op
        for b in inner:
            yield from walk(b)


def reads(op: Op) -> Iterator[ir.Value]:
    """The operands of an op and of all that its regions hold."""
    yield from op.operands
    for block in (block for region in op.regions for block in region.blocks):
        yield from (v for inner in walk(block) for v in inner.operands)


def enclosing(op: Op) -> Iterator[ir.Block]:
    """The blocks that an op lies in, the innermost first, up to the body of its function."""
    while not isinstance(op.operation.opview, func.FuncOp):
        yield op.operation.block
        op = op.operation.block.owner
