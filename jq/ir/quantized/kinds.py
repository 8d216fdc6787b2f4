"""The quantized type that a tensor of an encoding has, and the encoding of a type."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from jq.formats import NUMPY, Encoding
from jq.formats.affine import affine_format
from jq.formats.affine_storage import FULL
from jq.ir import ir

UNIFORM_QUANTIZE, UNIFORM_DEQUANTIZE = "stablehlo.uniform_quantize", "stablehlo.uniform_dequantize"
CAST = "stablehlo.bitcast_convert"


def axes_of(enc: Encoding) -> list[int]:
    """The axes that have a scale for each index or block."""
    return [a for a, n in enumerate(enc.grid) if n > 1]


def bits_of(enc: Encoding) -> int:
    """Bits of a code of an affine encoding, 2 to 16.

    Raises:
        FormatError: the format is another kind.
    """
    return affine_format(enc.format).bits


def parameters(enc: Encoding, values: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The scales and zero points of an affine encoding.

    Args:
        values: its parts by name, as they are stored; `zero_point` may also be int32 numbers.

    Returns:
        Scales in float64 and integer zero points (0 without any), flat, in row-major order of
        `enc.grid`.
    """
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
    return ir.Operation.create(CAST, results=[kind], operands=[value]).result
