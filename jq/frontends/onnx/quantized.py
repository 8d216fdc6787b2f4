"""Quantize and dequantize in a trace: the markers that the compiler takes for what they are.

    %codes = stablehlo.composite "jq.quantize" %x, %scale, %zero_point {format = "int8", ...}

They are those of `jq.ir.markers`, with the parameters that the file gives. Types that are no
integers of up to 16 bits are computed as the standard says, without a marker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from jq.base.errors import UserError
from jq.formats import Encoding
from jq.formats.affine import Affine, affine_format
from jq.formats.affine_storage import FULL
from jq.formats.base import unpacked
from jq.frontends.onnx.conversion import convert, to_float8
from jq.frontends.onnx.values import (
    Codes,
    Value,
    Weight,
    known,
    offset_of,
    plain,
    to_signed,
    traced,
)
from jq.frontends.tracing.arrays import JaxOps

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
        return _quantize_float(x, plain(scale), zero, dtype, axis, block, saturate)
    enc, parts = _described(x.shape, scale, zero, dtype, axis, block)
    fmt = _affine(enc)

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
    steps = jnp.asarray(plain(x)) / _array(scale).astype(np.float32).reshape(())
    if zero is not None:
        steps = steps + _array(zero).astype(np.float32).reshape(())
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
        return _dequantize_plain(x, scale, zero, axis, block, dtype)
    name = x.name if isinstance(x, Weight) else name
    codes = jnp.asarray(to_signed(x))
    enc, parts = _described(codes.shape, scale, zero, kind, axis, block)
    fmt, operands = _affine(enc), {"codes": codes, **parts}

    def body(*given: Any, **_: Any) -> Any:
        found = dict(zip(operands, given, strict=True))
        y = fmt.dequantize(OPS, found["codes"], found["scale"], found.get("zero_point"), enc)
        return lax.convert_element_type(y, dtype)

    marked = jax.lax.composite(body, "jq.dequantize")
    return marked(*operands.values(), **_attributes(enc, list(operands), name))


def unit(x: Value, zero: Value = None, *, axis: int = 1, name: str = "") -> Any:
    """The whole numbers that codes stand for, as floats: a dequantize with a scale of 1."""
    one = np.ones((), np.float32)
    return dequantize(x, one, zero, axis=axis, name=name)


def _described(
    shape: tuple[int, ...], scale: Value, zero: Value, dtype: np.dtype[Any], axis: int, block: int
) -> tuple[Encoding, dict[str, Any]]:
    """The encoding, and scale and signed zero point of its grid."""
    rank = len(shape)
    factor = _array(scale).astype(np.float32)
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
    value = data if data is not None else traced(zero)
    if isinstance(value, Codes):
        return value.signed.astype(np.int32)
    return value.astype(np.int32) - offset_of(dtype)


def _array(x: Value) -> Any:
    """Known data as NumPy: parameters of a format are constants of the program."""
    data = known(x)
    return data if data is not None else plain(x)


def _on_grid(x: Any, enc: Encoding) -> Any:
    count = int(np.prod(enc.grid, dtype=np.int64))
    if np.prod(x.shape, dtype=np.int64) == 1:
        one = x.reshape([1] * len(enc.grid))
        if isinstance(x, np.ndarray):
            return np.ascontiguousarray(np.broadcast_to(one, enc.grid)).reshape(enc.grid)
        return jnp.broadcast_to(one, enc.grid)
    if np.prod(x.shape, dtype=np.int64) != count:
        raise UserError(f"scales of shape {tuple(x.shape)} for a tensor of shape {enc.shape}")
    return x.reshape(enc.grid)


def _affine(enc: Encoding) -> Affine:
    return affine_format(enc.format)


def _attributes(enc: Encoding, parts: list[str], name: str) -> Mapping[str, Any]:
    return {
        "format": enc.format,
        "shape": np.asarray(enc.shape, np.int64),
        "block": np.asarray(enc.block, np.int64),
        "scheme": enc.scheme,
        "scale_type": enc.scale_type,
        "options": dict(enc.options),
        "parts": tuple(parts),
        "tensor": name,
    }


# Numbers packed into bytes, as ONNX Runtime's block formats have them


def small_type(bits: int) -> np.dtype[Any]:
    """The unsigned type of a number of 2, 4 or 8 bits."""
    return np.dtype({2: ml_dtypes.uint2, 4: ml_dtypes.uint4, 8: np.uint8}[bits])


def unpacked_fields(raw: np.ndarray, bits: int) -> np.ndarray:
    """Each byte's numbers along the last axis, the low bits first; uint8."""
    parts = [raw >> (bits * i) & ((1 << bits) - 1) for i in range(8 // bits)]
    return np.stack(parts, -1).reshape(*raw.shape[:-1], -1)


# Types without a marker


def _spread(v: Any, shape: tuple[int, ...], axis: int, block: int) -> Any:
    """A scale or zero point in the shape of what it belongs to."""
    v = jnp.asarray(v)
    if v.size == 1:
        return v.reshape(())
    if block:
        axis %= len(shape)
        return lax.slice_in_dim(jnp.repeat(v, block, axis=axis), 0, shape[axis], axis=axis)
    if v.ndim == len(shape) > 1:
        return v
    return v.reshape([-1 if a == axis % len(shape) else 1 for a in range(len(shape))])


def _quantize_float(
    x: Any, scale: Any, zero: Value, dtype: np.dtype[Any], axis: int, block: int, saturate: bool
) -> Any:
    y = x.astype(np.float32) / _spread(scale, x.shape, axis, block).astype(np.float32)
    if zero is not None:
        y = y + _spread(plain(zero), x.shape, axis, block).astype(np.float32)
    if dtype.name.startswith("float8"):
        return to_float8(y, dtype, saturate)
    return convert(y, dtype)


def _dequantize_plain(
    x: Value, scale: Value, zero: Value, axis: int, block: int, dtype: Any
) -> Any:
    codes, factor, offset = (None if v is None else known(v) for v in (x, scale, zero))
    fixed = factor is not None and (zero is None or offset is not None)
    if codes is not None and codes.dtype == np.int32 and fixed:
        with jax.ensure_compile_time_eval():  # a bias is a constant, as it would be in float
            return np.asarray(_plain_numbers(codes, factor, offset, axis, block, dtype))
    return _plain_numbers(x, scale, zero, axis, block, dtype)


def _plain_numbers(x: Value, scale: Value, zero: Value, axis: int, block: int, dtype: Any) -> Any:
    x = jnp.asarray(plain(x))
    wide = np.float64 if x.dtype == np.int32 and dtype == np.float64 else np.float32
    factor = _spread(_array(scale), x.shape, axis, block).astype(wide)
    if zero is not None and x.dtype.kind in "iu":
        x = x - _spread(plain(zero), x.shape, axis, block).astype(x.dtype)
    y = x.astype(wide)
    if zero is not None and x.dtype.kind not in "iu":
        y = y - _spread(plain(zero), x.shape, axis, block).astype(wide)
    return (y * factor).astype(dtype)
