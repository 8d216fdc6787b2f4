"""Quantized types and the encodings that they stand for; ops on them, which say what they were."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jq.formats import NUMPY, Encoding, affine_format
from jq.formats.affine_math import FULL
from jq.ir import Op, Program, ir, maker, tensor_type
from jq.ir.build import attribute, attributes_of, create
from jq.ir.markers import DEQUANTIZE
from jq.ir.ops.lookup import of_one_type, rule_named

# The quantized type that a tensor of an encoding has, and the encoding of a type.
UNIFORM_QUANTIZE, UNIFORM_DEQUANTIZE = "stablehlo.uniform_quantize", "stablehlo.uniform_dequantize"
CAST = "stablehlo.bitcast_convert"


def axes_of(enc: Encoding) -> list[int]:
    """The axes that have a scale for each index or block."""
    return [a for a, n in enumerate(enc.grid) if n > 1]


def bits_of(enc: Encoding) -> int:
    """Bits of a code of an affine encoding, 2 to 16; `FormatError` for another kind."""
    return affine_format(enc.format).bits


def parameters(enc: Encoding, values: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The scales in float64 and integer zero points (0 without any) of an affine encoding, flat, in
    row-major order of `enc.grid`.

    Args:
        values: its parts by name, as they are stored; `zero_point` may also be int32 numbers."""
    fmt, zeros = affine_format(enc.format), values.get("zero_point")
    scales = np.asarray(fmt.scale(NUMPY, values, enc), np.float64).reshape(-1)
    if zeros is None:
        return scales, np.zeros(scales.shape, int)
    if zeros.dtype != np.int32:  # as it is stored
        zeros = fmt.zero_point(NUMPY, values, enc)
    return scales, np.asarray(zeros).reshape(-1)


def kind_of(enc: Encoding, values: Mapping[str, Any]) -> ir.Type:
    """The quantized type of an encoding and its parameters."""
    fmt = affine_format(enc.format)
    low, high = fmt.limits(enc)
    pairs = zip(*(a.tolist() for a in parameters(enc, values)), strict=True)
    numbers, axes = [f"{s!r}:{z}" for s, z in pairs], axes_of(enc)
    rest = f":{axes[0]}, {{{', '.join(numbers)}}}" if axes else f", {numbers[0]}"
    shape = "".join(f"{n}x" for n in enc.shape)
    return ir.Type.parse(f"tensor<{shape}!quant.uniform<i{fmt.bits}<{low}:{high}>:f32{rest}>>")


def encoding_of_type(kind: ir.Type) -> Encoding | None:
    """The encoding that a tensor of a quantized type has; None where no format is it."""
    shape = tuple(ir.RankedTensorType(kind).shape)
    match = re.search(r"!quant\.uniform<([iu])(\d+)(?:<(-?\d+):-?\d+>)?:\w+(?::(\d+))?", str(kind))
    if match is None or match[2] not in ("2", "4", "8", "16"):
        return None
    zeros = ":" in str(kind).partition(", ")[2]
    block = tuple(int(match[4] == str(axis)) for axis in range(len(shape)))
    name = f"{'uint' if match[1] == 'u' else 'int'}{match[2]}"
    full = match[3] is None or int(match[3]) == -(1 << (int(match[2]) - 1))
    if zeros:
        return Encoding(name, shape, block, "asymmetric")
    return Encoding(name, shape, block, options=(("divisor", FULL),) if full else ())


def is_quantized(kind: ir.Type) -> bool:
    """True if a type is, or has elements of, one of StableHLO's quantized types."""
    return "!quant." in str(kind)


def per_tensor(kind: ir.Type) -> bool:
    """True if a quantized type has one scale for the whole tensor."""
    return bool(re.search(r"!quant\.uniform<[iu]\d+(<[-:\d]+>)?:f32, ", str(kind)))


def around_zero(kind: ir.Type) -> bool:
    """True if a quantized type has no zero point, and as many codes below zero as above."""
    match = re.search(r"<i\d+<-(\d+):(\d+)>:[^:>]*>", str(kind))
    return match is not None and match[1] == match[2]


def element_of(value: ir.Value) -> ir.Type:
    """The element type of a ranked tensor."""
    return ir.RankedTensorType(value.type).element_type


def storage_of(element: ir.Type) -> ir.IntegerType:
    """The integers that hold the codes of a quantized element type."""
    bits = re.search(r"<[iu](\d+)", str(element))
    assert bits
    return ir.IntegerType.get_signless(int(bits[1]))


def with_element(like: ir.Type, element: ir.Type) -> ir.Type:
    """The type of a tensor of the same shape, with other elements."""
    return ir.RankedTensorType.get(ir.RankedTensorType(like).shape, element)


def cast(value: ir.Value, kind: ir.Type) -> ir.Value:
    """The same codes by another type, at the current insertion point."""
    return create(CAST, kind, value)


# What an op was; how its operands are encoded; an edge of sums of 32 bits.
TYPED, SIDES, WIDE = "jq.typed", "jq.sides", "jq.wide"


def outside(ops: Iterable[Op]) -> list[Op]:
    """The ops without those in the bodies of pools and the like, which go with their op."""
    parents = ((op, op.operation.parent) for op in ops)
    return [op for op, parent in parents if parent is None or rule_named(parent.name) is None]


def checked(op: Op, kind: ir.Type, operands: Sequence[ir.Value], **more: Any) -> ir.Value | None:
    """An op on other operands, with more attributes; None where StableHLO has no such op."""
    said = {key: attribute(value) for key, value in more.items()}
    return valid(like_op(op, kind, operands, attributes_of(op) | said))


def valid(made: ir.Operation) -> ir.Value | None:
    """The result of a new op, which is erased where it is none of StableHLO's."""
    try:
        made.verify()
    except ir.MLIRError:
        made.erase()
        return None
    return made.result


def like_op(
    op: Op, kind: ir.Type, operands: Sequence[ir.Value], attributes: dict[str, Any]
) -> ir.Operation:
    """An op on operands and with a result of other types; what it does to scalars goes along."""
    name, count = op.operation.name, len(op.regions)
    made = ir.Operation.create(name, [kind], operands, attributes, regions=count)
    if count:
        _copy_body(op, made, ir.RankedTensorType(kind).element_type)
    return made


def _copy_body(op: Op, made: ir.Operation, element: ir.Type) -> None:
    """The body of a pool or a sort, for scalars of another type."""
    (old,) = op.regions[0].blocks
    plain = old.arguments[0].type
    scalar = ir.RankedTensorType.get([], element)
    block = made.regions[0].blocks.append(*(scalar for _ in old.arguments))
    known = dict(zip(old.arguments, block.arguments, strict=True))
    with ir.InsertionPoint(block):
        for inner in old.operations:
            kinds = [scalar if v.type == plain else v.type for v in inner.results]
            given = [known[v] for v in inner.operands]
            copy = ir.Operation.create(inner.operation.name, kinds, given, attributes_of(inner))
            known.update(zip(inner.results, copy.results, strict=True))


def floats(sums: ir.Value) -> ir.Value:
    """The float numbers that sums of 32 bits are."""
    kind = tensor_type(ir.RankedTensorType(sums.type).shape, np.float32)
    return create(UNIFORM_DEQUANTIZE, kind, sums, **{WIDE: ir.UnitAttr.get()})


def widened(value: ir.Value, bits: int, said: ir.DictAttr, *, centred: bool) -> ir.Value:
    """The same numbers in codes of more bits; `centred`: around a zero point of 0, which the right
    side of StableHLO's products must have. The difference of two codes of 8 bits has 9."""
    element = str(element_of(value))
    if centred:
        element = re.sub(r":-?\d+>$", ">", element)
    wide = ir.Type.parse(re.sub(r"^(!quant\.uniform<)i\d+(<[^>]*>)?:", rf"\1i{bits}:", element))
    kind, says = with_element(value.type, wide), {WIDE: ir.UnitAttr.get(), DEQUANTIZE: said}
    return create(UNIFORM_QUANTIZE, kind, value, **says)


def sums_of(value: ir.Value) -> ir.Value | None:
    """The quantized sums that a float value is, or None."""
    op = maker(value, UNIFORM_DEQUANTIZE)
    return op.operands[0] if op and WIDE in op.attributes else None


def is_constant(program: Program, value: ir.Value) -> bool:
    """True if a value is a constant or a weight, but for movement."""
    while (op := maker(value)) is not None and of_one_type(op) == (0,):
        value = op.operands[0]
    return program.weight_name(value) is not None or maker(value, "stablehlo.constant") is not None
