"""Numbers of one type in another, as `Cast` and `QuantizeLinear` convert them."""

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jq.frontends.onnx.values import bits_of, is_float


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
        wide = x.astype(np.float32)
        return jnp.clip(wide, -6, 6).astype(dtype)
    if bits_of(dtype) < 8:
        narrow = jnp.trunc(x) if is_float(x.dtype) else x
        return narrow.astype(np.int32).astype(dtype)
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
