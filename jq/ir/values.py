"""What patterns are made of: what an op is, the op that makes a value, and the ops that read it."""

from __future__ import annotations

from jaxlib.mlir import ir


def kind_of(op: ir.Operation) -> str:
    """The op's name; a composite's own name."""
    if op.operation.name == "stablehlo.composite":
        return ir.StringAttr(op.operation.attributes["name"]).value
    return str(op.operation.name)


def maker(value: ir.Value, *kinds: str) -> ir.Operation | None:
    """The op that makes a value, if it is of one of these kinds (of any, where none are given).

    None for what an op of another kind makes, and for the argument of a block: an input, a weight,
    or what a loop carries.
    """
    op = value.owner
    if isinstance(op, ir.Block) or (kinds and kind_of(op) not in kinds):
        return None
    return op


def users(value: ir.Value) -> list[ir.Operation]:
    """The ops that read a value, once for each operand that it is."""
    return [use.owner for use in value.uses]


def only_user(value: ir.Value, *kinds: str) -> ir.Operation | None:
    """The op that reads a value, if one alone does, and once, and it is of one of these kinds."""
    readers = users(value)
    if len(readers) != 1 or (kinds and kind_of(readers[0]) not in kinds):
        return None
    return readers[0]
