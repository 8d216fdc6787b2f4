"""Values of a program in another element type, in place; some keep theirs, by casts around them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jq.ir import Program, at, dense_array, editing, ir, shape_of, tensor_type
from jq.ir.build import dense_of, settle_type
from jq.ir.values import Op, last_of, maker, walk

Cast = Callable[[ir.Value], ir.Value]  # builds a value of the same type, made of another one's


def values_of(block: ir.Block) -> Iterator[ir.Value]:
    """Every value that a block and all regions inside define."""
    yield from block.arguments
    for op in walk(block):
        yield from op.results
        for region in op.regions:
            for inner in region.blocks:
                yield from inner.arguments


def retype(value: ir.Value, dtype: Any) -> None:
    """Gives a value, a constant with its numbers, another type; maker and readers must agree."""
    with editing():
        if (made := maker(value, "stablehlo.constant")) is not None:
            array = dense_array(value)
            assert array is not None
            made.attributes["value"] = dense_of(array.astype(dtype))
        value.set_type(tensor_type(shape_of(value), dtype))


def keep_types(op: Op, kept: Callable[[ir.Value], bool], cast: Cast) -> list[ir.Value]:
    """Casts operands and results of an op that are `kept`; the values between keep their types."""
    found = []
    with at(op):
        for i, value in enumerate(op.operands):
            if kept(value):
                found.append(cast(value))
                op.operands[i] = found[-1]
    for value in filter(kept, op.results):
        with at(op, after=True):
            cast_readers(value, cast)
        found.append(value)
    return found


def cast_readers(value: ir.Value, cast: Cast) -> None:
    """All that read a value read a cast of it, built at the insertion point."""
    if uses := list(value.uses):
        moved = cast(value)
        for use in uses:
            use.owner.operands[use.operand_number] = moved


def keep_signature(
    program: Program, arguments: Iterable[ir.Value], kept: Callable[[ir.Value], bool], cast: Cast
) -> set[ir.Value]:
    """Keeps the types of some of the arguments of `@main`, and of its results."""
    own = list(filter(kept, arguments))
    with at(program.body.operations[0]):
        for argument in own:
            cast_readers(argument, cast)
    return {*own, *keep_types(last_of(program.body), kept, cast)}


def retype_functions(program: Program) -> None:
    """Makes the types of all functions but `@main` those of their blocks (see `refresh`)."""
    for f in program.functions():
        if f.name.value != "main":
            settle_type(f)
