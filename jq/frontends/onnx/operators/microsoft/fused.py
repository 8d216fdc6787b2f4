"""Operators that ONNX Runtime's optimizer fuses (`com.microsoft`): activations and normalizations.

Defaults are those of ONNX Runtime's schemas, which the `onnx` package does not have.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.operators.convolutions import conv
from jq.frontends.onnx.operators.indexing import from_front
from jq.frontends.onnx.operators.normalization import of_rms, standard
from jq.frontends.onnx.operators.products import gemm
from jq.frontends.onnx.operators.recurrent import activation as activation_of
from jq.frontends.onnx.operators.windows import Windowing
from jq.frontends.onnx.registry import MICROSOFT, Array, operator, operators

_EPSILON = 1e-12


def _gelu(x: Any, bias: Any, approximate: bool) -> Any:
    return jax.nn.gelu(x if bias is None else x + bias, approximate=approximate)


operators(
    {
        "BiasGelu": lambda x, bias: _gelu(jnp.asarray(x), bias, False),
        "FastGelu": lambda x, bias=None: _gelu(jnp.asarray(x), bias, True),
        "QuickGelu": lambda x, *, alpha=1.702: x * jax.nn.sigmoid(np.asarray(alpha, x.dtype) * x),
    },
    domain=MICROSOFT,
)


@operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    x: Array,
    skip: Array,
    gamma: Array,
    beta: Array = None,
    bias: Array = None,
    *,
    epsilon: float = _EPSILON,
) -> Any:
    """The result, mean and inverse deviation of the rows, and the sum that is normalized."""
    total = _sum(x, skip, bias)
    return (*_normalized(total, gamma, beta, epsilon), total)


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_normalization(
    x: Array, skip: Array, gamma: Array, bias: Array = None, *, epsilon: float = _EPSILON
) -> Any:
    total = _sum(x, skip, bias)
    y, inverse = of_rms(total, (-1,), epsilon)
    return y * gamma, jnp.zeros_like(inverse), inverse, total


@operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    ids: Array,
    segments: Array = None,
    words: Array = None,
    positions: Array = None,
    segment_table: Array = None,
    gamma: Array = None,
    beta: Array = None,
    mask: Array = None,
    position_ids: Array = None,
    *,
    epsilon: float = _EPSILON,
) -> Any:
    """The result, the number of words that `mask` [batch, length] has, and the sum of the rows."""
    batch, length = ids.shape
    total = _rows(words, ids)
    total = total + (positions[:length] if position_ids is None else _rows(positions, position_ids))
    if segments is not None and segment_table is not None:
        total = total + _rows(segment_table, segments)
    count: Any = np.zeros(batch, np.int32)
    if mask is not None:
        count = jnp.sum(jnp.asarray(mask) == 1, -1, dtype=np.int32)
    return _normalized(total, gamma, beta, epsilon)[0], count, total


def _sum(x: Any, skip: Any, bias: Any) -> Any:
    total = jnp.asarray(x) + skip
    return total if bias is None else total + bias


def _normalized(x: Any, gamma: Any, beta: Any, epsilon: float) -> tuple[Any, Any, Any]:
    y, mean, inverse = standard(x, (-1,), epsilon)
    y = y * gamma
    return (y if beta is None else y + beta), mean, inverse


def _rows(table: Any, ids: Any) -> Any:
    return jnp.take(table, from_front(ids, table.shape[0]), axis=0, mode="clip")


@operator("FusedConv", domain=MICROSOFT)
def fused_conv(
    x: Array,
    w: Array,
    b: Array = None,
    z: Array = None,
    *,
    activation: str = "",
    activation_params: Any = (),
    window: Windowing,
    group: int = 1,
) -> Array:
    """A convolution, `z` added to it, and an activation after that."""
    y = conv(x, w, b, window=window, group=group)
    y = y if z is None else y + z
    if activation == "Clip":
        return jnp.clip(y, *activation_params)
    first, second = [*activation_params, None, None][:2]
    return activation_of(activation, first, second)(y) if activation else y


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(
    a: Array,
    b: Array,
    c: Array = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
) -> Array:
    y = gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return activation_of(activation, activation_alpha, activation_beta)(y) if activation else y
