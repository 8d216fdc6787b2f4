"""Normalizations and activations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.frontends.onnx.registry import Array, Given, microsoft, operator, operators
from jq.frontends.onnx.tensors import numpy_type


def _channels(x: Any, v: Any) -> Any:
    return v.reshape(-1, *[1] * (x.ndim - 2))


@operator("BatchNormalization", takes="x scale bias mean var; epsilon momentum training_mode=0")
def batch_normalization(o: Given) -> Any:
    """One factor and one addend a channel, which can be merged into a product in front."""
    x, mean, var, kept = o.x, o.mean, o.var, []
    if o.training_mode:
        axes, old = (0, *range(2, x.ndim)), np.asarray(o.momentum, mean.dtype)
        mean, var = jnp.mean(x, axes), jnp.var(x, axes)
        pairs = (o.mean, mean), (o.var, var)
        kept = [before * old + now.astype(before.dtype) * (1 - old) for before, now in pairs]
    factor = o.scale / jnp.sqrt(var + np.asarray(o.epsilon, var.dtype))
    y = x * _channels(x, factor) + _channels(x, o.bias - mean * factor)
    return (y.astype(x.dtype), *kept)


@operator("InstanceNormalization", takes="x[N C L ...] scale[C] b[C]; epsilon")
def instance_normalization(o: Given) -> Array:
    y, *_ = standard(o.x, tuple(range(2, o.x.ndim)), o.epsilon)
    return y * _channels(o.x, o.scale) + _channels(o.x, o.b)


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


ROWS = "axis=-1 epsilon=1e-5 stash_type=1"


@operator("LayerNormalization", takes=f"x scale b?; {ROWS}")
def layer_normalization(o: Given) -> Any:
    wide, rank = jnp.asarray(o.x).astype(numpy_type(o.stash_type)), o.x.ndim
    y, mean, inverse = standard(wide, tuple(range(o.axis % rank, rank)), o.epsilon)
    y = y.astype(o.x.dtype) * o.scale
    return y if o.b is None else y + o.b, mean, inverse


@operator("RMSNormalization", "SimplifiedLayerNormalization", takes=f"x scale; {ROWS}")
@microsoft("SimplifiedLayerNormalization", takes=f"x scale; {ROWS}")
def rms_normalization(o: Given) -> Array:
    wide, rank = jnp.asarray(o.x).astype(numpy_type(o.stash_type)), o.x.ndim
    y, _ = of_rms(wide, tuple(range(o.axis % rank, rank)), o.epsilon)
    return y.astype(o.x.dtype) * o.scale


@operator("GroupNormalization", takes="x scale bias; num_groups epsilon stash_type=1")
def group_normalization(o: Given) -> Array:
    """Scale and bias are one a group before version 21, then one a channel."""
    x, old = o.x, o.node.version < 21
    n, c = x.shape[:2]
    wide = jnp.asarray(x).astype(x.dtype if old else numpy_type(o.stash_type))
    groups = wide.reshape(n, o.num_groups, c // o.num_groups, *x.shape[2:])
    y, *_ = standard(groups, tuple(range(2, groups.ndim)), o.epsilon)
    y = y.astype(x.dtype).reshape(x.shape)
    each = [jnp.repeat(v, c // o.num_groups) if old else v for v in (o.scale, o.bias)]
    return y * _channels(x, each[0]) + _channels(x, each[1])


@operator("LpNormalization")
def lp_normalization(x: Array, *, axis: int = -1, p: int = 2) -> Array:
    norm = jnp.sum(jnp.abs(x) if p == 1 else x * x, axis, keepdims=True)
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


def _elu(x: Array, *, alpha: float, gamma: float = 1) -> Array:
    y = jnp.where(x < 0, np.asarray(alpha, x.dtype) * jnp.expm1(x), x)
    return y if gamma == 1 else np.asarray(gamma, x.dtype) * y


GELU = {"Gelu": lambda x, *, approximate="none": jax.nn.gelu(x, approximate == "tanh")}
operators({"Elu": _elu, "Selu": _elu, **GELU})
microsoft("Gelu")(GELU["Gelu"])
