"""Sources of an operand: a weight, codes that the model makes itself, or a computation."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from jq.base.deep import Steps, deep, every
from jq.formats import Encoding
from jq.ir import Op, Program, ir, maker, shape_of
from jq.ir.affine import constant_of
from jq.ir.build import NAME, string_attr
from jq.ir.markers import DEQUANTIZE, QUANTIZE_DYNAMIC, Marker, match
from jq.ir.ops import Axes, Contraction, Movement, Role, rule_of
from jq.ir.values import CONTROL


@dataclass(frozen=True)
class WeightUse:
    """A weight found behind an operand: which of its axes the contraction sums over.

    `stored` is its encoding when it came quantized; `beside` is that of a role; `value` is it."""

    name: str
    shape: tuple[int, ...]
    contracted: Axes
    block_axis: int | None
    value: ir.Value = field(compare=False)
    stored: Encoding | None = None
    beside: Axes = frozenset()


def contractions(program: Program) -> Iterator[tuple[Any, Contraction]]:
    """Every op that could be quantized, with its rule."""
    for op in program.walk():
        rule = rule_of(op)
        if isinstance(rule, Contraction):
            yield op, rule


def unmoved(value: ir.Value) -> ir.Value:
    """The value in front of ops that only move elements."""
    while (op := maker(value)) is not None and isinstance(rule_of(op), Movement):
        value = op.operands[0]
    return value


def op_name(op: Op) -> str:
    return string_attr(op, NAME) or op.operation.name


def find_weight(
    program: Program,
    value: ir.Value,
    role: Role,
    *,
    scaled: bool = False,
    constants: bool = False,
    chosen: bool = True,
) -> WeightUse | None:
    """Follows an operand back through movements to a weight, or None when it is computed.

    `scaled`: also to one that constants scale (a weight of a loaded program has taken these).
    `constants`: constants of the module are its weights, and have no name. `chosen`: also to a
    stack that whole matrices are looked up in, or cut out of at run time, but not in a product with
    another weight, whose activations they are."""
    operand = value
    block = frozenset() if role.block_axis is None else frozenset({role.block_axis})
    axes: _Sides = (role.contracted, block, role.beside)
    while True:
        marker = match(value, DEQUANTIZE)
        if constants:
            name = "" if marker or maker(value, "stablehlo.constant") else None
        elif marker is None:
            name = program.weight_name(value)
        elif is_stored(program, marker):
            name = marker.tensor
        else:
            return None
        if name is not None:
            return _use(name, value, marker, axes)
        op = maker(value)
        if op is None or not op.operation.operands:
            return None
        if scaled and (inner := scaled_operand(program, op)) is not None:
            value = inner
            continue
        source = _source(op, axes)
        cut = op.operation.name in ("stablehlo.gather", "stablehlo.dynamic_slice")
        if source is None or (cut and not (chosen and _alone(program, operand))):
            return None
        value, axes = source


_Sides = tuple[Axes, ...]  # contracted axes, the axis of blocks, and axes beside


def _use(name: str, value: ir.Value, marker: Marker | None, axes: _Sides) -> WeightUse:
    """The use of a weight whose axes are known."""
    (contracted, block, beside), shape = axes, shape_of(value)
    axis = max((a for a in block if shape[a] > 1), default=None)
    stored, apart = marker.encoding if marker else None, (block | beside) - {axis}
    return WeightUse(name, shape, contracted, axis, value, stored, apart)


def _source(op: Op, axes: _Sides) -> tuple[ir.Value, _Sides] | None:
    """The operand that a movement moves, or that whole matrices are looked up in, and its axes."""
    rule, value = rule_of(op), op.operation.operands[0]
    if isinstance(rule, Movement):
        return value, tuple(rule.back(op, own) for own in axes)
    if not isinstance(rule, Contraction) or rule.op != "gather" or rule.decline(op) is not None:
        return None
    (contracted, block, _), rank = axes, len(shape_of(value))
    stored, lead = match(value, DEQUANTIZE) is not None, len(shape_of(op.results[0])) - rank + 1
    if rank < 3 or not stored or min((*contracted, *block), default=-1) < lead:
        return None  # of a stack that is stored, whole matrices are a weight; rows never
    return value, tuple(frozenset(a - lead + 1 for a in own) for own in axes)


def _alone(program: Program, value: ir.Value) -> bool:
    """True if no product that reads a value reads a weight as well, but for those looked up."""
    for use in value.uses:
        rule, operands = rule_of(use.owner), use.owner.operands
        for role in rule.roles(use.owner) if isinstance(rule, Contraction) else ():
            other = None if role.index == use.operand_number else operands[role.index]
            if other is not None and find_weight(program, other, role, chosen=False):
                return False
    return True


@deep
def blocks_behind(value: ir.Value) -> Steps[Encoding | None]:
    """The encoding in which a value was rounded at run time, before ops that move whole blocks."""
    marker = match(value, DEQUANTIZE)
    if marker is not None:
        codes = marker.parts.get("codes")
        return marker.encoding if codes is not None and match(codes, QUANTIZE_DYNAMIC) else None
    op = maker(value)
    rule = None if op is None else rule_of(op)
    if op is None or not isinstance(rule, Movement):
        return None
    inner = yield (op.operation.operands[0],)
    if inner is None:
        return None
    block, shape = list[int](), shape_of(value)
    for axis, size in enumerate(shape):
        sources = rule.back(op, frozenset({axis}))
        cut = [a for a in sources if inner.block[a] != 1]
        if cut and (len(sources) > 1 or inner.shape[cut[0]] != size):
            return None
        block.append(inner.block[cut[0]] if cut else 1)
    return inner.with_shape(shape, tuple(block))


@deep
def made_of(program: Program, value: ir.Value) -> Steps[frozenset[str] | None]:
    """The weights that a value is computed from, if from nothing but them and constants."""
    name, marker, owner = program.weight_name(value), match(value, DEQUANTIZE), maker(value)
    if name is not None or (marker is not None and is_stored(program, marker)):
        return frozenset({name or (marker.tensor if marker else "")})
    if owner is None or owner.operation.name in CONTROL:  # whose regions may read anything
        return None
    found = yield from every((program, operand) for operand in owner.operation.operands)
    return None if found is None else frozenset().union(*found)


def scaled_operand(program: Program, op: Op) -> ir.Value | None:
    """The operand of a multiply or divide that a constant of fewer numbers scales."""
    if op.operation.name not in ("stablehlo.multiply", "stablehlo.divide"):
        return None
    size = math.prod(shape_of(op.operation.results[0]))
    operands = list(op.operation.operands)
    factors = operands[1:] if op.operation.name == "stablehlo.divide" else operands[::-1]
    for i, value in enumerate(factors):
        factor = constant_of(program, value)
        if factor is not None and factor.size < size:
            return operands[i]
    return None


def is_stored(program: Program, marker: Marker) -> bool:
    """True if a dequantize reads weights of the program, not codes that it computes."""
    return all(program.weight_name(part) is not None for part in marker.parts.values())
