"""Multiply-accumulate in IREE's IR: which element types are multiplied, and into what.

Types are seen through widening (`extsi`, `extui`, `extf`) and through ops that only move data, so
that an i8 operand counts as `i8` however the compiler chose to feed it."""

from math import prod
from typing import Any, NamedTuple

from iree.compiler import ir

from jq.ir import Op


class MultiplyAdd(NamedTuple):
    """Element types of a multiply-accumulate: `lhs * rhs` added into `acc`."""

    lhs: str
    rhs: str
    acc: str


WIDEN = {"arith.extsi", "arith.extui", "arith.extf"}
ADD = {"arith.addi", "arith.addf"}
MUL = {"arith.muli", "arith.mulf"}

# Ops whose result holds the values of operand 0, moved.
_NAMES = """
    flow.tensor.reshape flow.tensor.transfer
    iree_tensor_ext.compute_barrier.end iree_tensor_ext.compute_barrier.start
    linalg.broadcast linalg.pack linalg.transpose linalg.unpack
    tensor.cast tensor.collapse_shape tensor.expand_shape tensor.extract_slice tensor.pad
"""
_MOVE = set(_NAMES.split())


def contraction_of(op: Op) -> tuple[MultiplyAdd, int] | None:
    """The product that a linalg or inner-tiled op computes and the size of it, or None."""
    if op.name == "iree_codegen.inner_tiled":
        lhs, rhs, out = list(op.operands)[:3]
        types = MultiplyAdd(source_type(lhs), source_type(rhs), element_type(out))
        return types, _work(lhs, rhs, out)
    if not op.name.startswith("linalg.") or not op.regions or len(op.operands) < 2:
        return None
    body = op.regions[0].blocks[0]
    terminator = list(body)[-1].operation
    factors = _accumulated(terminator.operands[0], body) if len(terminator.operands) else None
    if factors is None:
        return None
    operands = list(op.operands)
    lhs, rhs = (_scalar_type(f, operands) for f in factors)
    args = [_argument(f) for f in factors]
    if args[0] is not None and args[0] > (args[1] or 0):  # in the order of the operands
        lhs, rhs = rhs, lhs
    shaped = [v for v in operands if isinstance(v.type, ir.RankedTensorType)]
    return MultiplyAdd(lhs, rhs, element_type(operands[-1])), _work(*shaped)


def _accumulated(value: Any, body: Any) -> tuple[Any, Any] | None:
    """The two different factors when `value` is `accumulator + a * b`, else None."""
    if not is_op(value, ADD):
        return None
    last = len(body.arguments) - 1
    for this, other in (0, 1), (1, 0):
        acc, term = value.owner.operands[this], _narrow(value.owner.operands[other])
        if _argument(acc) == last and is_op(term, MUL):
            a, b = term.owner.operands
            return None if a == b else (a, b)
    return None


def is_op(value: Any, names: set[str]) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.name in names


def _narrow(value: Any) -> Any:
    """The value that `value` widens."""
    while is_op(value, WIDEN):
        value = value.owner.operands[0]
    return value


def _argument(value: Any) -> int | None:
    """Number of the block argument that `value` widens, or None."""
    value = _narrow(value)
    return ir.BlockArgument(value).arg_number if isinstance(value.owner, ir.Block) else None


def _scalar_type(value: Any, operands: list[Any]) -> str:
    kind, index = str(_narrow(value).type), _argument(value)
    return kind if index is None else source_type(operands[index], kind)


def source_type(value: Any, narrowest: str | None = None) -> str:
    """Element type that a tensor's values had before they were widened and moved."""
    kind = narrowest or element_type(value)
    while not isinstance(value.owner, ir.Block):
        op = value.owner
        if op.name in _MOVE:
            value = op.operands[0]
        elif op.name == "util.optimization_barrier":
            value = op.operands[list(op.results).index(value)]
        elif op.name == "linalg.generic" and (index := _widened_operand(op)) is not None:
            value = op.operands[index]
        else:
            break
        kind = element_type(value)
    return kind


def _widened_operand(op: Op) -> int | None:
    """The operand whose elements an element-wise op passes on, widened or as they are."""
    terminator = list(op.regions[0].blocks[0])[-1].operation
    if len(terminator.operands) != 1:
        return None
    index = _argument(terminator.operands[0])
    return index if index is not None and index < len(op.operands) - 1 else None


def element_type(value: Any) -> str:
    kind = value.type
    return str(kind.element_type if isinstance(kind, ir.ShapedType) else kind)


def _work(*values: Any) -> int:
    return prod(n for v in values for n in ir.RankedTensorType(v.type).shape if n > 0)
