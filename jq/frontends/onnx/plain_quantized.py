"""Quantization to floats of few bits, and by tables of numbers: computed as it is written."""

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from jq.frontends.onnx.values import Value, best_known, bits_of, is_float, known, plain


# Numbers of one type in another, as `Cast` and `QuantizeLinear` convert them.
def convert(x: Any, dtype: np.dtype[Any], saturate: bool = True) -> Any:
    """`x` in another type, as ONNX's Cast: integers wrap, floats of 8 bits saturate or overflow."""
    x = jnp.asarray(x)
    if dtype == x.dtype:
        return x
    if dtype.kind == "b":
        return x != jnp.zeros((), x.dtype)
    if dtype.name.startswith("float8") and x.dtype.kind != "b":
        return to_float8(x, dtype, saturate)
    if dtype.name.startswith("float4"):
        return jnp.clip(x.astype(np.float32), -6, 6).astype(dtype)
    if bits_of(dtype) < 8:
        return (jnp.trunc(x) if is_float(x.dtype) else x).astype(np.int32).astype(dtype)
    if dtype.kind in "iu" and x.dtype.kind not in "iub" and bits_of(dtype) < 32:
        return x.astype(np.int32).astype(dtype)
    return x.astype(dtype)


def to_float8(x: Any, dtype: np.dtype[Any], saturate: bool) -> Any:
    if dtype.name == "float8_e8m0fnu":
        return x.astype(dtype)
    wide = x if x.dtype == np.float64 else x.astype(np.float32)
    if not saturate:
        return wide.astype(dtype)
    largest = float(ml_dtypes.finfo(dtype).max)
    return jnp.where(jnp.isnan(wide), wide, jnp.clip(wide, -largest, largest)).astype(dtype)


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


def quantize_float(
    x: Any, scale: Any, zero: Value, dtype: np.dtype[Any], axis: int, block: int, saturate: bool
) -> Any:
    y = x.astype(np.float32) / _spread(scale, x.shape, axis, block).astype(np.float32)
    if zero is not None:
        y = y + _spread(plain(zero), x.shape, axis, block).astype(np.float32)
    return to_float8(y, dtype, saturate) if dtype.name.startswith("float8") else convert(y, dtype)


def dequantize_plain(x: Value, scale: Value, zero: Value, axis: int, block: int, dtype: Any) -> Any:
    codes, factor, offset = (None if v is None else known(v) for v in (x, scale, zero))
    fixed = factor is not None and (zero is None or offset is not None)
    if codes is not None and codes.dtype == np.int32 and fixed:
        with jax.ensure_compile_time_eval():  # a bias is a constant, as it would be in float
            return np.asarray(_plain_numbers(codes, factor, offset, axis, block, dtype))
    return _plain_numbers(x, scale, zero, axis, block, dtype)


def _plain_numbers(x: Value, scale: Value, zero: Value, axis: int, block: int, dtype: Any) -> Any:
    x = jnp.asarray(plain(x))
    wide = np.float64 if x.dtype == np.int32 and dtype == np.float64 else np.float32
    factor = _spread(best_known(scale), x.shape, axis, block).astype(wide)
    if zero is not None and x.dtype.kind in "iu":
        x = x - _spread(plain(zero), x.shape, axis, block).astype(x.dtype)
    y = x.astype(wide)
    if zero is not None and x.dtype.kind not in "iu":
        y = y - _spread(plain(zero), x.shape, axis, block).astype(wide)
    return (y * factor).astype(dtype)
