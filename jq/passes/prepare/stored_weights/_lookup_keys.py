"""Lookups of whole layers or rows of a weight: one index picks a layer, or many pick rows."""

from dataclasses import dataclass

from jq.ir import Op, Program, ir, shape_of, stablehlo
from jq.ir.build import integers
from jq.ir.values import maker

SLICE, GATHER = "stablehlo.dynamic_slice", "stablehlo.gather"


@dataclass(frozen=True)
class Key:
    """Kind of a lookup: how many things there are to look up, and the indices."""

    kind: str
    count: int
    index: ir.Value


def key_of(program: Program, op: Op) -> Key | None:
    """The key of a lookup of whole layers or rows of a weight; None for other ops."""
    name = op.operation.name
    if name not in (SLICE, GATHER) or program.weight_name(op.operands[0]) is None:
        return None
    shape, index = shape_of(op.operands[0]), op.operands[1]
    if not shape or tuple(integers(op, "slice_sizes")) != (1, *shape[1:]):
        return None
    if name == GATHER:
        d = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
        rank = len(shape_of(op.results[0]))
        plain = list(d.start_index_map) == [0] == list(d.collapsed_slice_dims)
        last = list(d.offset_dims) == list(range(rank - len(shape) + 1, rank))
        if not plain or not last or list(d.operand_batching_dims):
            return None
    return Key(name, shape[0], index)


def is_looked_up(program: Program, value: ir.Value) -> bool:
    """True if a value is one layer, or some rows, of a weight."""
    op = maker(value)
    if op is not None and op.operation.name == "stablehlo.reshape":
        op = maker(op.operands[0])
    return op is not None and key_of(program, op) is not None
