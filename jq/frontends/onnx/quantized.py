"""Quantize and dequantize in a trace: the markers that the compiler takes for what they are.

    %codes = stablehlo.composite "jq.quantize" %x, %scale, %zero_point {format = "int8", ...}

They are those of `jq.ir.markers`, with the parameters that the file gives. Types that are no
integers of up to 16 bits are computed as the standard says, without a marker."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from jq.base.errors import UserError
from jq.formats import Encoding, affine_format, unpacked
from jq.formats.affine_math import FULL
from jq.frontends.onnx import values
from jq.frontends.onnx.plain_quantized import dequantize_plain, quantize_float
from jq.frontends.onnx.registry import Given
from jq.frontends.onnx.values import Codes, Value, Weight, best_known, known, offset_of, plain
from jq.frontends.tracing.arrays import JaxOps
from jq.ir.markers import encoding_attributes

OPS = JaxOps()
_INTEGERS = ("int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16")


def is_integer(dtype: np.dtype[Any]) -> bool:
    return np.dtype(dtype).name in _INTEGERS


def quantize(
    x: Any,
    scale: Value,
    zero: Value,
    dtype: np.dtype[Any],
    *,
    axis: int = 1,
    block: int = 0,
    saturate: bool = True,
    name: str = "",
) -> Value:
    """`saturate(round(x / scale) + zero)` in `dtype`, ties to even."""
    x = jnp.asarray(plain(x))
    if not is_integer(dtype):
        return quantize_float(x, plain(scale), zero, dtype, axis, block, saturate)
    enc, parts = _described(x.shape, scale, zero, dtype, axis, block)
    fmt = affine_format(enc.format)

    def body(x: Any, *given: Any, **_: Any) -> Any:
        found = dict(zip(parts, given, strict=True))
        return fmt.quantize_static(OPS, x, found["scale"], found.get("zero_point"), enc)

    marked = jax.lax.composite(body, "jq.quantize")
    return Codes(marked(x, *parts.values(), **_attributes(enc, list(parts), name)), dtype)


def quantize_shifted(
    x: Any, scale: Value, zero: Value, dtype: np.dtype[Any], *, name: str = ""
) -> Value:
    """`saturate(round(x / scale + zero))` of 8 bits with one scale, ties to even: other than
    `quantize`, which rounds first, where the zero point is odd and x between two steps."""
    steps = jnp.asarray(plain(x)) / best_known(scale).astype(np.float32).reshape(())
    if zero is not None:
        steps = steps + best_known(zero).astype(np.float32).reshape(())
    least, most = (np.float32(v) for v in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    number = jnp.clip(jnp.round(steps), least, most).astype(np.int32)
    return Codes((number - offset_of(dtype)).astype(np.int8), dtype)


def dequantize(
    x: Value,
    scale: Value,
    zero: Value = None,
    *,
    axis: int = 1,
    block: int = 0,
    dtype: Any = np.float32,
    name: str = "",
) -> Any:
    """`(x - zero) * scale`, in `dtype`."""
    kind = np.dtype(x.dtype)
    if not is_integer(kind):
        return dequantize_plain(x, scale, zero, axis, block, dtype)
    name = x.name if isinstance(x, Weight) else name
    codes = jnp.asarray(values.to_signed(x))
    enc, parts = _described(codes.shape, scale, zero, kind, axis, block)
    fmt, operands = affine_format(enc.format), {"codes": codes, **parts}

    def body(*given: Any, **_: Any) -> Any:
        found = dict(zip(operands, given, strict=True))
        y = fmt.dequantize(OPS, found["codes"], found["scale"], found.get("zero_point"), enc)
        return lax.convert_element_type(y, dtype)

    marked = jax.lax.composite(body, "jq.dequantize")
    return marked(*operands.values(), **_attributes(enc, list(operands), name))


def real(o: Given, name: str, axis: int = 1) -> Any:
    """The numbers of an operand, whose scale and zero point are beside it under its name."""
    scale, zero = getattr(o, f"{name}_scale"), getattr(o, f"{name}_zero_point")
    return dequantize(getattr(o, name), scale, zero, axis=axis, name=o.where)


def units(o: Given, name: str, axis: int = 1) -> Any:
    """The whole numbers that codes stand for, as floats: as `real`, with a scale of 1."""
    return real(o.but(**{f"{name}_scale": np.ones((), np.float32)}), name, axis)


def _described(
    shape: tuple[int, ...], scale: Value, zero: Value, dtype: np.dtype[Any], axis: int, block: int
) -> tuple[Encoding, dict[str, Any]]:
    """The encoding, and scale and signed zero point of its grid."""
    rank = len(shape)
    factor = best_known(scale).astype(np.float32)
    offset = None if zero is None else _signed_zero(zero, dtype)
    sizes = {int(np.prod(v.shape, dtype=np.int64)) for v in (factor, offset) if v is not None}
    if max(sizes) == 1:
        blocks = (0,) * rank
    elif block:
        blocks = tuple(block if a == axis % rank else 1 for a in range(rank))
    elif factor.ndim == rank and factor.ndim > 1:  # one number an index of several axes
        blocks = tuple(int(n > 1) for n in factor.shape)
    else:
        blocks = tuple(int(a == axis % rank) for a in range(rank))
    shift = offset_of(dtype)
    if offset is None and shift:
        offset = np.full((), -shift, np.int32)
    none = offset is None or (isinstance(offset, np.ndarray) and not offset.any())
    scheme = "symmetric" if none else "asymmetric"
    options = (("divisor", FULL),) if none else ()  # every code may occur
    fmt = dtype.name.removeprefix("u")
    enc = unpacked(Encoding(fmt, shape, blocks, scheme, options=options))
    parts = {"scale": _on_grid(factor, enc)}
    if not none:
        parts["zero_point"] = _on_grid(offset, enc)
    return enc, parts


def _signed_zero(zero: Value, dtype: np.dtype[Any]) -> Any:
    data = known(zero)
    value = data if data is not None else values.traced(zero)
    if isinstance(value, Codes):
        return value.signed.astype(np.int32)
    return value.astype(np.int32) - np.full(1, offset_of(dtype), np.int32)  # an array in any case


def _on_grid(x: Any, enc: Encoding) -> Any:
    size, known_here = math.prod(x.shape), isinstance(x, np.ndarray)
    if size not in (1, math.prod(enc.grid)):
        raise UserError(f"scales of shape {tuple(x.shape)} for a tensor of shape {enc.shape}")
    if size > 1:
        return x.reshape(enc.grid)
    one = x.reshape([1] * len(enc.grid))
    return np.full(enc.grid, one, one.dtype) if known_here else jnp.broadcast_to(one, enc.grid)


def _attributes(enc: Encoding, parts: list[str], name: str) -> Mapping[str, Any]:
    said = encoding_attributes(enc, parts, name) | {"parts": tuple(parts)}  # JAX hashes them
    return said | {key: np.asarray(said[key], np.int64) for key in ("shape", "block")}


# Numbers packed into bytes, as ONNX Runtime's block formats have them


def small_type(bits: int) -> np.dtype[Any]:
    """The unsigned type of a number of 2, 4 or 8 bits."""
    return np.dtype({2: ml_dtypes.uint2, 4: ml_dtypes.uint4, 8: np.uint8}[bits])


def unpacked_fields(raw: np.ndarray, bits: int) -> np.ndarray:
    """Each byte's numbers along the last axis, the low bits first; uint8."""
    parts = [raw >> (bits * i) & ((1 << bits) - 1) for i in range(8 // bits)]
    return np.stack(parts, -1).reshape(*raw.shape[:-1], -1)
