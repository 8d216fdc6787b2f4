"""Ops of integer programs as a kernel over rows takes them."""

import numpy as np

from jq.ir import Op, dense_array, dtype_of, integers, ir, like, maker, shape_of, stablehlo
from jq.ir.arrays import OPS as PROGRAM
from jq.ir.ops.selection import combines
from jq.ir.values import short_kind
from jq.kernels.rowwise.row_program import MOST, OPS

TABLE = 8192  # entries of a table
WIDE = 512  # elements of a row, where rows may be cut anew
FORMS = ("convert", "compare", "gather", "reduce", "broadcast_in_dim", "reshape", "constant")


def fuses(op: Op) -> bool:
    """A kernel over rows may compute it, if its shape allows."""
    kind = short_kind(op)
    if kind not in FORMS and kind not in OPS:
        return False
    return len(op.results) == 1 and all(is_integer(v) for v in [*op.operands, *op.results])


def is_integer(value: ir.Value) -> bool:
    kind = ir.ShapedType(value.type).element_type
    return isinstance(kind, ir.IntegerType) and kind.is_signless


def as_integer(value: ir.Value) -> ir.Value:
    """Bits as bytes, before they are moved: IREE's compiler may fail on moved ones."""
    if dtype_of(value) != np.bool_:
        return value
    moved = maker(value, "stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose")
    if moved is None:
        return PROGRAM.convert(value, np.int8)
    return like(moved, [as_integer(moved.operands[0])], shape_of(value), np.int8)


def element_of(value: ir.Value) -> str:
    return f"i{ir.IntegerType(ir.ShapedType(value.type).element_type).width}"


def cut(size: int) -> tuple[int, int]:
    """Rows and columns of elements that may lie in any rows."""
    for k in range(min(MOST, size), WIDE, -1):
        if size % k == 0 and k % 64 == 0:
            return size // k, k
    k = max(d for d in range(1, min(MOST, size) + 1) if size % d == 0)
    return size // k, k


def number_of(op: Op) -> int | None:
    """The integer that is every element of a constant, or of what repeats it."""
    while short_kind(op) in ("broadcast_in_dim", "reshape"):
        made = maker(op.operands[0])
        if made is None:
            return None
        op = made
    if short_kind(op) != "constant" or not is_integer(op.results[0]):
        return None
    attr = op.attributes["value"]
    if isinstance(attr, ir.DenseElementsAttr) and attr.is_splat:
        return int(np.asarray(dense_array(op.results[0])).reshape(-1)[0])
    return None


def is_table(op: Op) -> bool:
    """A gather of single elements of a vector."""
    table, index = op.operands
    numbers = stablehlo.GatherDimensionNumbers(op.operation.attributes["dimension_numbers"])
    single = [numbers.offset_dims, numbers.collapsed_slice_dims, numbers.start_index_map]
    plain = single == [[], [0], [0]] and numbers.index_vector_dim == len(shape_of(index))
    return plain and len(shape_of(table)) == 1 and 1 < shape_of(table)[0] <= TABLE


def along_rows(op: Op) -> bool:
    """A sum, maximum or minimum along the last axis, from what changes nothing."""
    value, start = op.operands
    how, axes = combines(op), integers(op, "dimensions")
    if how not in ("add", "maximum", "minimum") or list(axes) != [len(shape_of(value)) - 1]:
        return False
    made = maker(start)
    number, limits = None if made is None else number_of(made), np.iinfo(dtype_of(value))
    return number == {"add": 0, "maximum": limits.min, "minimum": limits.max}[how]
