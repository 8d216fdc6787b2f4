"""Quantized types on the values between ops, not at the edges alone; and back.

    %d = uniform_dequantize %q                   // !quant.uniform<i8:f32, 0.1:3>
    %y = convolution %d, %w : f32
    %z = maximum (add %y, %bias), 0
    %r = uniform_quantize %z
    ->
    %y = convolution %q, %w : !quant.uniform<i32:f32:3, {...}>
    %z = uniform_quantize (add %y, (uniform_quantize %bias))     // i32 -> i8
    %r = maximum %z, (uniform_quantize 0)

A product has the type of its exact sums: 32 bits, with the product of both scales. What is added
to it is a number of that type, off by half such a step. Bounds follow the quantize, which keeps the
order of numbers. Movements and pools of codes carry the type of the codes.

Every op that is written so says what it was, and `open_values` finds it again: a program that is
read back is the one that was written, with the numbers that were added as they were.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from jq.formats import NUMPY
from jq.formats.affine import affine_format
from jq.ir.build import attributes_of
from jq.ir.markers import DEQUANTIZE, encoding_of
from jq.ir.mlir_context import at
from jq.ir.program import Program
from jq.ir.types import tensor_type
from jq.ir.values import Op, maker, only_user

TYPED, SIDES, WIDE = "jq.typed", "jq.sides", "jq.wide"
QUANTIZED, PLAIN = "stablehlo.uniform_quantize", "stablehlo.uniform_dequantize"
CAST = "stablehlo.bitcast_convert"
PRODUCTS = ("stablehlo.dot_general", "stablehlo.convolution")
SUMS = ("stablehlo.add", "stablehlo.subtract")
BOUNDS = ("stablehlo.maximum", "stablehlo.minimum", "stablehlo.clamp")
CONSTANT = ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose")
WINDOWS = ("stablehlo.reduce_window", "stablehlo.reduce")
# Ops on codes, and how many of their first operands are codes; None for all.
MOVES: dict[str, int | None] = {
    **dict.fromkeys(("reshape", "transpose", "slice", "reverse", "broadcast_in_dim"), 1),
    **dict.fromkeys(("concatenate", "maximum", "minimum"), None),
    "pad": 2,
    "reduce_window": 2,
    "dynamic_slice": 1,
    "gather": 1,
}


def carry_types(program: Program) -> None:
    """Rewrites in place every op that StableHLO has for the types of its operands."""
    for op in _outside(program.walk()):
        name = op.operation.name
        with at(op):
            made = (
                _product(op)
                if name in PRODUCTS
                else (name in SUMS and _sum(program, op)) or _moved(program, op)
            )
            if name == QUANTIZED and WIDE not in op.operation.attributes:
                made = _quantized(program, op)
            if made:
                op.operation.results[0].replace_all_uses_with(made)
                op.operation.erase()
    program.drop_dead()


def _outside(ops: Iterable[Op]) -> list[Op]:
    """Without those in the bodies of pools, which go with their op."""
    return [op for op in ops if _parent(op) not in WINDOWS]


def _parent(op: Op) -> str:
    parent = op.operation.parent
    return "" if parent is None else parent.name


def _wide(value: ir.Value) -> ir.Value | None:
    """The quantized sums behind a float, or None."""
    op = maker(value, PLAIN)
    return op.operation.operands[0] if op and WIDE in op.operation.attributes else None


def _checked(
    name: str,
    kind: ir.Type,
    operands: Sequence[ir.Value],
    attributes: dict[str, Any],
    op: Op | None = None,
) -> ir.Value | None:
    """An op with that result; None where StableHLO has no such op. `op`: whose regions it has."""
    made = ir.Operation.create(
        name,
        results=[kind],
        operands=list(operands),
        attributes=attributes,
        regions=len(op.operation.regions) if op else 0,
    )
    if op is not None and len(op.operation.regions):
        _copy_body(op, made, ir.RankedTensorType(operands[0].type).element_type)
    try:
        made.verify()
    except ir.MLIRError:
        made.erase()
        return None
    return made.result


def _copy_body(op: Op, made: ir.Operation, element: ir.Type) -> None:
    """The body of a pool, for scalars of another type."""
    (old,) = op.operation.regions[0].blocks
    scalar = ir.RankedTensorType.get([], element)
    block = made.regions[0].blocks.append(*(scalar for _ in old.arguments))
    known = dict(zip(old.arguments, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for inner in old.operations:
            results = [scalar for _ in inner.operation.results]
            operands = [known[v] for v in inner.operation.operands]
            copy = ir.Operation.create(inner.operation.name, results=results, operands=operands)
            known.update(zip(inner.operation.results, copy.results, strict=True))


# Products


def _parameters(said: ir.DictAttr) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Scales and zero points (flat), and the axes that they lie along."""
    enc = encoding_of(said)
    given = ir.DictAttr(said["values"])
    values = {a.name: np.array(ir.DenseElementsAttr(a.attr)) for a in given}
    fmt, zeros = affine_format(enc.format), values.get("zero_point")
    scale = np.asarray(fmt.scale(NUMPY, values, enc), np.float64).reshape(-1)
    if zeros is not None and zeros.dtype != np.int32:  # as it is stored
        zeros = np.asarray(fmt.zero_point(NUMPY, values, enc))
    points = np.zeros(scale.shape, int) if zeros is None else zeros.reshape(-1)
    return scale, points, [a for a, n in enumerate(enc.grid) if n > 1]


def _product(op: Op) -> ir.Value | None:
    """The product of quantized operands, as sums of 32 bits, and the floats that they are."""
    sources = [maker(v, PLAIN) for v in op.operation.operands]
    if any(s is None or DEQUANTIZE not in s.operation.attributes for s in sources):
        return None
    said = [ir.DictAttr(s.operation.attributes[DEQUANTIZE]) for s in sources if s is not None]
    (left, _, left_axes), (right, zeros, axes) = map(_parameters, said)
    result = ir.RankedTensorType(op.operation.results[0].type)
    if left_axes or zeros.any() or len(axes) > 1 or str(result.element_type) != "f32":
        return None
    axis = _result_axis(op, axes[0]) if axes else None
    if axes and axis is None:
        return None
    steps = [f"{s!r}" for s in (left * right).tolist()]
    rest = f", {steps[0]}" if axis is None else f":{axis}, {{{', '.join(steps)}}}"
    kind = ir.RankedTensorType.get(
        result.shape, ir.Type.parse(f"!quant.uniform<i32:f32{rest}>"), result.encoding
    )
    operands = [s.operation.operands[0] for s in sources if s is not None]
    attributes = attributes_of(op) | {TYPED: _text("product"), SIDES: ir.ArrayAttr.get(said)}
    made = _checked(op.operation.name, kind, operands, attributes)
    return None if made is None else _floats(made)


def _result_axis(op: Op, axis: int) -> int | None:
    """Where an axis of the right operand is in the result, if it is no contracted one."""
    from jq.ir import stablehlo

    attributes = op.operation.attributes
    if op.operation.name == PRODUCTS[1]:
        numbers = stablehlo.ConvDimensionNumbers(attributes["dimension_numbers"])
        own = axis == numbers.kernel_output_feature_dimension
        return numbers.output_feature_dimension if own else None
    numbers = stablehlo.DotDimensionNumbers(attributes["dot_dimension_numbers"])
    batch, summed = numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions
    if axis in (*batch, *summed):
        return None
    rank, rhs = (ir.RankedTensorType(v.type).rank for v in op.operation.operands)
    lhs_free = rank - len(batch) - len(summed)
    return len(batch) + lhs_free + sum(a < axis and a not in (*batch, *summed) for a in range(rhs))


def _floats(sums: ir.Value) -> ir.Value:
    kind = tensor_type(ir.RankedTensorType(sums.type).shape, np.float32)
    made = ir.Operation.create(
        PLAIN, results=[kind], operands=[sums], attributes={WIDE: ir.UnitAttr.get()}
    )
    return made.result


# Sums


def _sum(program: Program, op: Op) -> ir.Value | None:
    """What is added to sums of 32 bits, or bounds them, in their type."""
    found = [_wide(v) for v in op.operation.operands]
    kind = next((v.type for v in found if v is not None), None)
    if kind is None:
        return None
    values = list(op.operation.operands)
    operands = [_as(program, v, w, kind) for v, w in zip(values, found, strict=True)]
    if any(v is None for v in operands):
        return None
    attributes = attributes_of(op) | {TYPED: _text("sum")}
    known = [v for v in operands if v is not None]
    made = _checked(op.operation.name, kind, known, attributes)
    return None if made is None else _floats(made)


def _as(program: Program, value: ir.Value, wide: ir.Value | None, kind: ir.Type) -> ir.Value | None:
    """A float value in the type of sums; None for one that is computed."""
    if wide is not None and wide.type == kind:
        return wide
    attributes: dict[str, Any] = {WIDE: ir.UnitAttr.get()}
    codes = maker(value, PLAIN)
    if wide is None and codes is not None:
        attributes[DEQUANTIZE] = codes.operation.attributes[DEQUANTIZE]
        wide = codes.operation.operands[0]
    if wide is None and not _is_constant(program, value):
        return None
    return _checked(QUANTIZED, kind, [value if wide is None else wide], attributes)


def _is_constant(program: Program, value: ir.Value) -> bool:
    while (op := maker(value, *CONSTANT)) is not None:
        value = op.operation.operands[0]
    return program.weight_name(value) is not None or maker(value, "stablehlo.constant") is not None


def _quantized(program: Program, op: Op) -> ir.Value | None:
    """Codes of sums, and bounds behind them: rounding to codes keeps the order of numbers."""
    value, bounds = op.operation.operands[0], []
    while (bound := maker(value, *BOUNDS)) is not None and only_user(value) is not None:
        index = _bounded(program, bound)
        if index is None:
            break
        bounds.append((bound, index))
        value = bound.operation.operands[index]
    sums, kind = _wide(value), op.operation.results[0].type
    if not bounds and sums is None:
        return None
    read = value if sums is None else sums
    result = _checked(QUANTIZED, kind, [read], attributes_of(op))
    for bound, index in reversed(bounds):
        if result is None:
            return None
        operands = list(bound.operation.operands)
        codes = [
            result if i == index else _as(program, v, None, _with_shape(kind, v))
            for i, v in enumerate(operands)
        ]
        known = [v for v in codes if v is not None]
        if len(known) < len(codes):
            return None
        attributes = attributes_of(bound) | {TYPED: _text("bound")}
        result = _checked(bound.operation.name, kind, known, attributes)
    return result


def _bounded(program: Program, op: Op) -> int | None:
    """Which operand of an op constants bound."""
    constant = [_is_constant(program, v) for v in op.operation.operands]
    return constant.index(False) if constant.count(False) == 1 else None


def _with_shape(kind: ir.Type, like: ir.Value) -> ir.Type:
    element = ir.RankedTensorType(kind).element_type
    return ir.RankedTensorType.get(ir.RankedTensorType(like.type).shape, element)


# Codes


def _moved(program: Program, op: Op) -> ir.Value | None:
    """A movement or pool of codes, on the quantized type that they have."""
    name = op.operation.name.removeprefix("stablehlo.")
    if name not in MOVES or len(op.operation.results) != 1:
        return None
    operands = list(op.operation.operands)
    count = MOVES[name] or len(operands)
    first = maker(operands[0], CAST)
    if first is None or not _per_tensor(first.operation.operands[0].type):
        return None
    element = ir.RankedTensorType(first.operation.operands[0].type).element_type
    codes = [_as_codes(program, v, element) for v in operands[:count]]
    if any(v is None for v in codes):
        return None
    plain = op.operation.results[0].type
    kind = ir.RankedTensorType.get(ir.RankedTensorType(plain).shape, element)
    known = [*(v for v in codes if v is not None), *operands[count:]]
    attributes = attributes_of(op) | {TYPED: _text("codes")}
    made = _checked(op.operation.name, kind, known, attributes, op)
    return None if made is None else _cast(made, plain)


def _as_codes(program: Program, value: ir.Value, element: ir.Type) -> ir.Value | None:
    """Integers as codes of a type: what has it, and constants."""
    source = maker(value, CAST)
    if source is not None:
        found = source.operation.operands[0]
        same = ir.RankedTensorType(found.type).element_type == element
        return found if same else None
    if not _is_constant(program, value):
        return None
    return _cast(value, ir.RankedTensorType.get(ir.RankedTensorType(value.type).shape, element))


def _per_tensor(kind: ir.Type) -> bool:
    return bool(re.search(r"!quant\.uniform<[iu]\d+(<[-:\d]+>)?:f32, ", str(kind)))


def _cast(value: ir.Value, kind: ir.Type) -> ir.Value:
    return ir.Operation.create(CAST, results=[kind], operands=[value]).result


def _text(value: str) -> ir.Attribute:
    return ir.StringAttr.get(value)


# Back


def open_values(ops: Iterable[Op]) -> None:
    """Rewrites in place what `carry_types` wrote: casts, dequantizes, and ops on plain numbers.

    Args:
        ops: of a module, in program order.
    """
    real, plain = dict[ir.Value, ir.Value](), dict[tuple[ir.Value, str], ir.Value]()

    def number(value: ir.Value, said: ir.Attribute | None) -> ir.Value:
        """The float that a quantized value stands for."""
        if value in real or said is None:
            return real.get(value, value)
        key = value, str(said)
        if key not in plain:
            shape = ir.RankedTensorType(value.type).shape
            made = ir.Operation.create(
                PLAIN,
                results=[tensor_type(shape, np.float32)],
                operands=[value],
                attributes={DEQUANTIZE: said},
            )
            plain[key] = made.result
        return plain[key]

    done = [op for op in _outside(ops) if _opened(op, real, number)]
    for op in reversed(done):
        op.operation.erase()


def _opened(
    op: Op,
    real: dict[ir.Value, ir.Value],
    number: Callable[[ir.Value, ir.Attribute | None], ir.Value],
) -> bool:
    """Puts the op that it was in the place of an op; False where it stays."""
    attributes, name = attributes_of(op), op.operation.name
    if name == QUANTIZED and op.operation.operands[0] in real and WIDE not in attributes:
        op.operation.operands[0] = real[op.operation.operands[0]]
        return False
    if WIDE not in attributes and TYPED not in attributes:
        return False
    operands, result = list(op.operation.operands), op.operation.results[0]
    with at(op):
        if name == PLAIN:
            result.replace_all_uses_with(number(operands[0], None))
        elif WIDE in attributes:
            real[result] = number(operands[0], attributes.get(DEQUANTIZE))
        elif (how := ir.StringAttr(attributes.pop(TYPED)).value) == "codes":
            result.replace_all_uses_with(_plain_codes(op, attributes))
        elif how == "bound":
            result.replace_all_uses_with(_bounded_number(op, attributes, number))
        else:
            sides = attributes.pop(SIDES, None)
            said = list(ir.ArrayAttr(sides)) if sides else [None] * len(operands)
            values = [number(v, s) for v, s in zip(operands, said, strict=True)]
            kind = tensor_type(ir.RankedTensorType(result.type).shape, np.float32)
            made = ir.Operation.create(name, results=[kind], operands=values, attributes=attributes)
            real[result] = made.result
    return True


def _bounded_number(
    op: Op,
    attributes: dict[str, Any],
    number: Callable[[ir.Value, ir.Attribute | None], ir.Value],
) -> ir.Value:
    """The bound in front of the quantize that it follows."""
    operands = list(op.operation.operands)
    makers = [maker(v, QUANTIZED) for v in operands]
    index = next(i for i, m in enumerate(makers) if m and WIDE not in m.operation.attributes)
    quantize = makers[index]
    assert quantize is not None
    values = [number(v, None) for v in operands]
    values[index] = quantize.operation.operands[0]
    kind = values[index].type
    made = ir.Operation.create(
        op.operation.name, results=[kind], operands=values, attributes=attributes
    )
    again = ir.Operation.create(
        QUANTIZED,
        results=[op.operation.results[0].type],
        operands=[made.result],
        attributes=attributes_of(quantize),
    )
    return again.result


def _plain_codes(op: Op, attributes: dict[str, Any]) -> ir.Value:
    """A movement of integers, between casts from and to their quantized type."""
    kind = ir.RankedTensorType(op.operation.results[0].type)
    bits = re.search(r"<[iu](\d+)", str(kind.element_type))
    assert bits
    integer = ir.IntegerType.get_signless(int(bits[1]))

    def cast(value: ir.Value) -> ir.Value:
        own = ir.RankedTensorType(value.type)
        quantized = own.element_type == kind.element_type
        return _cast(value, ir.RankedTensorType.get(own.shape, integer)) if quantized else value

    operands = [cast(v) for v in op.operation.operands]
    made = ir.Operation.create(
        op.operation.name,
        results=[ir.RankedTensorType.get(kind.shape, integer)],
        operands=operands,
        attributes=attributes,
        regions=len(op.operation.regions),
    )
    if len(op.operation.regions):
        _copy_body(op, made, integer)
    return _cast(made.result, op.operation.results[0].type)
