"""Activation functions."""

import jax
import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.registry import Array, operator


@operator("PRelu")
def prelu(x: Array, slope: Array) -> Array:
    return jnp.where(x < 0, x * slope, x)


@operator("LeakyRelu")
def leaky_relu(x: Array, *, alpha: float) -> Array:
    return jnp.where(x < 0, x * np.asarray(alpha, x.dtype), x)


@operator("Elu")
def elu(x: Array, *, alpha: float) -> Array:
    return jnp.where(x < 0, np.asarray(alpha, x.dtype) * jnp.expm1(x), x)


@operator("Selu")
def selu(x: Array, *, alpha: float, gamma: float) -> Array:
    return np.asarray(gamma, x.dtype) * elu(x, alpha=alpha)


@operator("Celu")
def celu(x: Array, *, alpha: float) -> Array:
    zero, a = jnp.zeros((), x.dtype), np.asarray(alpha, x.dtype)
    return jnp.maximum(x, zero) + jnp.minimum(zero, a * jnp.expm1(x / a))


@operator("ThresholdedRelu")
def thresholded_relu(x: Array, *, alpha: float) -> Array:
    return jnp.where(x > np.asarray(alpha, x.dtype), x, jnp.zeros((), x.dtype))


@operator("HardSigmoid")
def hard_sigmoid(x: Array, *, alpha: float, beta: float) -> Array:
    line = np.asarray(alpha, x.dtype) * x + np.asarray(beta, x.dtype)
    return jnp.clip(line, 0, 1).astype(x.dtype)


@operator("HardSwish")
def hard_swish(x: Array) -> Array:
    return x * hard_sigmoid(x, alpha=1 / 6, beta=0.5)


@operator("Mish")
def mish(x: Array) -> Array:
    return x * jnp.tanh(jnp.logaddexp(x, jnp.zeros((), x.dtype)))


@operator("Shrink")
def shrink(x: Array, *, lambd: float, bias: float) -> Array:
    low, by, zero = np.asarray(lambd, x.dtype), np.asarray(bias, x.dtype), jnp.zeros((), x.dtype)
    return jnp.where(x < -low, x + by, jnp.where(x > low, x - by, zero))


@operator("Gelu")
@operator("Gelu", domain="com.microsoft")
def gelu(x: Array, *, approximate: str = "none") -> Array:
    return jax.nn.gelu(jnp.asarray(x), approximate=approximate == "tanh")
