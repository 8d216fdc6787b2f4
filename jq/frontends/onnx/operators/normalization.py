"""Normalizations and activations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.frontends.onnx.registry import MICROSOFT, Array, Call, operator, operators
from jq.frontends.onnx.tensors import numpy_type


def _channels(x: Any, v: Any) -> Any:
    return v.reshape(-1, *[1] * (x.ndim - 2))


@operator("BatchNormalization")
def batch_normalization(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float,
    momentum: float = 0.9,
    training_mode: int = 0,
    node: Call,
) -> Any:
    if training_mode:
        axes = (0, *range(2, x.ndim))
        now = jnp.mean(x, axes), jnp.var(x, axes)
        old = np.asarray(momentum, mean.dtype)
        kept = [
            m * old + n.astype(m.dtype) * (1 - old) for m, n in zip((mean, var), now, strict=True)
        ]
        return (_normal(x, scale, bias, *now, epsilon), *kept)
    return _normal(x, scale, bias, mean, var, epsilon)


def _normal(x: Any, scale: Any, bias: Any, mean: Any, var: Any, epsilon: float) -> Any:
    """One factor and one addend a channel, which can be merged into a product in front."""
    factor = scale / jnp.sqrt(var + np.asarray(epsilon, var.dtype))
    y = x * _channels(x, factor) + _channels(x, bias - mean * factor)
    return y.astype(x.dtype)


@operator("InstanceNormalization")
def instance_normalization(x: Array, scale: Array, b: Array, *, epsilon: float) -> Array:
    y, *_ = standard(x, tuple(range(2, x.ndim)), epsilon)
    return y * _channels(x, scale) + _channels(x, b)


def standard(x: Any, axes: tuple[int, ...], epsilon: float) -> tuple[Any, Any, Any]:
    """`x` with mean 0 and variance 1 along the axes, its mean, and the inverse of its deviation."""
    mean = jnp.mean(x, axes, keepdims=True)
    centred = x - mean
    inverse = _inverse_rms(centred, axes, epsilon)
    return centred * inverse, mean, inverse


def of_rms(x: Any, axes: tuple[int, ...], epsilon: float) -> tuple[Any, Any]:
    """`x` with a mean square of 1 along the axes, and the factor that makes it so."""
    inverse = _inverse_rms(x, axes, epsilon)
    return x * inverse, inverse


def _inverse_rms(x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    square = jnp.mean(x * x, axes, keepdims=True)
    return lax.rsqrt(square + np.asarray(epsilon, square.dtype))


@operator("LayerNormalization")
def layer_normalization(
    x: Array,
    scale: Array,
    b: Array = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    node: Call,
) -> Any:
    wide = jnp.asarray(x).astype(numpy_type(stash_type))
    y, mean, inverse = standard(wide, tuple(range(axis % x.ndim, x.ndim)), epsilon)
    y = y.astype(x.dtype) * scale
    y = y if b is None else y + b
    return (y, mean, inverse) if node.results > 1 else y


@operator("RMSNormalization")
@operator("SimplifiedLayerNormalization", domain="")
@operator("SimplifiedLayerNormalization", domain=MICROSOFT)
def rms_normalization(
    x: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Array:
    wide = jnp.asarray(x).astype(numpy_type(stash_type))
    y, _ = of_rms(wide, tuple(range(axis % x.ndim, x.ndim)), epsilon)
    return y.astype(x.dtype) * scale


@operator("GroupNormalization")
def group_normalization(
    x: Array,
    scale: Array,
    bias: Array,
    *,
    num_groups: int,
    epsilon: float,
    stash_type: int = 1,
    node: Call,
) -> Array:
    """Before version 21 scale and bias are one a group, then one a channel."""
    n, c = x.shape[:2]
    kind, wide = x.dtype, numpy_type(stash_type) if node.version >= 21 else x.dtype
    groups = jnp.asarray(x).astype(wide).reshape(n, num_groups, c // num_groups, *x.shape[2:])
    y, *_ = standard(groups, tuple(range(2, groups.ndim)), epsilon)
    y = y.astype(kind).reshape(x.shape)
    if node.version < 21:
        scale, bias = (jnp.repeat(v, c // num_groups) for v in (scale, bias))
    return y * _channels(x, scale) + _channels(x, bias)


@operator("LpNormalization")
def lp_normalization(x: Array, *, axis: int = -1, p: int = 2) -> Array:
    size = jnp.abs(x) if p == 1 else x * x
    norm = jnp.sum(size, axis, keepdims=True)
    norm = norm if p == 1 else jnp.sqrt(norm)
    zero = norm == 0
    return jnp.where(zero, jnp.zeros((), x.dtype), x / jnp.where(zero, jnp.ones((), x.dtype), norm))


@operator("LRN")
def lrn(x: Array, *, size: int, alpha: float, beta: float, bias: float) -> Array:
    low, high = (size - 1) // 2, -(-(size - 1) // 2)
    window = (1, size, *[1] * (x.ndim - 2))
    pads = [(0, 0), (low, high), *[(0, 0)] * (x.ndim - 2)]
    x = jnp.asarray(x)
    total = lax.reduce_window(x * x, np.zeros((), x.dtype), lax.add, window, [1] * x.ndim, pads)
    factor = np.asarray(alpha / size, x.dtype)
    return x / (np.asarray(bias, x.dtype) + factor * total) ** np.asarray(beta, x.dtype)


@operator("Elu")
def elu(x: Array, *, alpha: float) -> Array:
    return jnp.where(x < 0, np.asarray(alpha, x.dtype) * jnp.expm1(x), x)


operators(
    {
        "Selu": lambda x, *, alpha, gamma: np.asarray(gamma, x.dtype) * elu(x, alpha=alpha),
    }
)
for _domain in ("", MICROSOFT):
    operators(
        {
            "Gelu": lambda x, *, approximate="none": jax.nn.gelu(
                jnp.asarray(x), approximate=approximate == "tanh"
            )
        },
        domain=_domain,
    )
