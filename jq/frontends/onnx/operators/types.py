"""Casts, and constants."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.frontends.onnx.plain_quantized import convert
from jq.frontends.onnx.registry import Array, Call, microsoft, operator
from jq.frontends.onnx.tensors import numpy_type
from jq.frontends.onnx.values import Sums, known, plain


@operator("Cast", codes=True)
def cast(x: Array, *, to: int, saturate: int = 1, round_mode: str = "up", node: Call) -> Array:
    dtype = numpy_type(to)
    if isinstance(x, Sums) and dtype == np.float32:
        return x.floats()
    x = plain(x)
    if dtype.hasobject or np.dtype(x.dtype).hasobject:
        raise node.refuse("strings are not supported")
    if dtype.name != "float8_e8m0fnu":
        return convert(x, dtype, bool(saturate))
    # The exponent alone, rounded up, down or to the nearest power.
    x = jnp.asarray(x).astype(np.float32)
    bits = lax.bitcast_convert_type(x, np.uint32)
    exponent, fraction = (bits >> 23) & 255, bits & 0x7FFFFF
    up = {"up": fraction > 0, "down": fraction < 0, "nearest": fraction >= 0x400000}[round_mode]
    limit = 254 if saturate else 255
    code = jnp.where(exponent == 255, 255, jnp.minimum(exponent + up, limit))
    code = jnp.where(jnp.isinf(x) & bool(saturate), 254, code)
    return lax.bitcast_convert_type(code.astype(np.uint8), dtype)


@operator("BitCast")
def bit_cast(x: Array, *, to: int) -> Array:
    dtype = numpy_type(to)
    x = jnp.asarray(x)
    if "b" in (x.dtype.kind, dtype.kind):
        return x.astype(dtype)
    return lax.bitcast_convert_type(x, dtype)


CONSTANTS = {"value": None, "value_float": np.float32, "value_int": np.int64}


@operator("Constant")
def constant(*, node: Call) -> Array:
    for key, value in node.attributes.items():
        if (name := key.removesuffix("s")) in CONSTANTS:
            return np.asarray(value, CONSTANTS[name])
    raise node.refuse(f"a constant of {', '.join(node.attributes) or 'nothing'}")


@operator("ConstantOfShape")
def constant_of_shape(input: Any, *, value: Any = None, node: Call) -> Array:
    if not isinstance(input, np.ndarray):
        raise node.refuse("its shape depends on the model's inputs", "fix it with --value NAME=V")
    fill = (np.zeros(1, np.float32) if value is None else value).reshape(())
    sizes = [int(n) for n in input.reshape(-1)]
    held = np.prod(sizes, dtype=np.float64) < 1 << 20  # a larger one is computed in the program
    return (np if held else jnp).full(sizes, fill, fill.dtype)


@operator("EyeLike")
def eye_like(x: Array, *, dtype: int | None = None, k: int = 0) -> Array:
    kind = np.dtype(x.dtype) if dtype is None else numpy_type(dtype)
    rows, columns = x.shape
    return np.eye(rows, columns, k, kind)


@operator("Range")
@microsoft("Range")
def arange(start: Any, limit: Any, delta: Any = None, *, node: Call) -> Array:
    delta = np.ones((), start.dtype) if delta is None else delta
    if not all(isinstance(v, np.ndarray) for v in (start, limit, delta)):
        raise node.refuse("its length depends on the model's inputs", "use --value NAME=V")
    if node.node.attributes.get("stash_type"):
        start, limit, delta = (np.asarray(v, np.float32) for v in (start, limit, delta))
    first, last, step = (np.float64(v.reshape(())) for v in (start, limit, delta))
    count = max(0, int(np.ceil((last - first) / step)))
    return (first + np.arange(count, dtype=np.float64) * step).astype(start.dtype)


@operator("Dropout")
def dropout(x: Array, ratio: Array = None, training_mode: Array = None, *, node: Call) -> Any:
    if training_mode is not None and (known(training_mode) is None or training_mode.any()):
        raise node.refuse("it is in training mode")
    return (x, jnp.ones(x.shape, bool)) if node.asks_for(1) else x
