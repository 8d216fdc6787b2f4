"""Values of a program in another element type, in place."""

from collections.abc import Iterator
from typing import Any

from jq.ir import Program, editing, func, ir, last_of, shape_of, tensor_type, walk


def values_of(block: ir.Block) -> Iterator[ir.Value]:
    """Every value that a block and all regions inside define."""
    yield from block.arguments
    for op in walk(block):
        yield from op.results
        for region in op.regions:
            for inner in region.blocks:
                yield from inner.arguments


def retype(value: ir.Value, dtype: Any) -> None:
    """Gives a value another element type; what reads it and what makes it have to agree."""
    with editing():
        value.set_type(tensor_type(shape_of(value), dtype))


def retype_functions(program: Program) -> None:
    """Makes the types of all functions but `@main` those of their blocks (see `refresh`)."""
    for f in program.functions():
        if f.name.value != "main":
            _retype_function(f)


def _retype_function(f: func.FuncOp) -> None:
    block = f.entry_block
    back = last_of(block)
    with editing():
        kind = ir.FunctionType.get(
            [a.type for a in block.arguments], [v.type for v in back.operands]
        )
        f.attributes["function_type"] = ir.TypeAttr.get(kind)
