"""Operators that ONNX Runtime's optimizer fuses (`com.microsoft`): activations and normalizations.

Defaults are those of ONNX Runtime's schemas, which the `onnx` package does not have."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.operators.convolutions import conv
from jq.frontends.onnx.operators.indexing import from_front
from jq.frontends.onnx.operators.normalization import of_rms, standard
from jq.frontends.onnx.operators.products import gemm
from jq.frontends.onnx.operators.recurrent import activation as activation_of
from jq.frontends.onnx.registry import MICROSOFT, Given, microsoft, operators

WORDS = (
    "ids[B S] segments[B S]? words[V W] positions[P W] segment_table[T W]?"
    " gamma[W] beta[W] mask[B S]?"
)
SKIPPED = "x[... W] skip gamma[W] {} bias[W]?; epsilon=1e-12"


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


@microsoft("SkipLayerNormalization", takes=SKIPPED.format("beta[W]?"))
def skip_layer_normalization(o: Given) -> Any:
    """The result, mean and inverse deviation of the rows, and the sum that is normalized."""
    total = _sum(o)
    return (*_normalized(o, total), total)


@microsoft("SkipSimplifiedLayerNormalization", takes=SKIPPED.format(""))
def skip_rms_normalization(o: Given) -> Any:
    total = _sum(o)
    y, inverse = of_rms(total, (-1,), o.epsilon)
    return y * o.gamma, jnp.zeros_like(inverse), inverse, total


@microsoft("EmbedLayerNormalization", takes=f"{WORDS} position_ids[1|B S]?; epsilon=1e-12")
def embed_layer_normalization(o: Given) -> Any:
    """The result, the number of words that `mask` [batch, length] has, and the sum of the rows."""
    batch, length = o.ids.shape
    total, ids = _rows(o.words, o.ids), o.position_ids
    total = total + (o.positions[:length] if ids is None else _rows(o.positions, ids))
    if o.segments is not None and o.segment_table is not None:
        total = total + _rows(o.segment_table, o.segments)
    count: Any = np.zeros(batch, np.int32)
    if o.mask is not None:
        count = jnp.sum(jnp.asarray(o.mask) == 1, -1, dtype=np.int32)
    return _normalized(o, total)[0], count, total


def _sum(o: Given) -> Any:
    total = jnp.asarray(o.x) + o.skip
    return total if o.bias is None else total + o.bias


def _normalized(o: Given, x: Any) -> tuple[Any, Any, Any]:
    y, mean, inverse = standard(x, (-1,), o.epsilon)
    y = y * o.gamma
    return (y if o.beta is None else y + o.beta), mean, inverse


def _rows(table: Any, ids: Any) -> Any:
    return jnp.take(table, from_front(ids, table.shape[0]), axis=0, mode="clip")


CONVOLVED = "x[N C L ...] w b[M]? z?; group=1 activation='' activation_params?"


@microsoft("FusedConv", takes=CONVOLVED)
def fused_conv(o: Given) -> Any:
    """A convolution, `z` added to it, and an activation after that."""
    y, given = conv(o), o.activation_params or ()
    y = y if o.z is None else y + o.z
    if o.activation == "Clip":
        return jnp.clip(y, *given)
    first, second = [*given, None, None][:2]
    return activation_of(o.activation, first, second)(y) if o.activation else y


MULTIPLIED = (
    "a b c[/ 1|N / 1|M 1|N]?; alpha=1.0 beta=1.0 transA=0 transB=0"
    " activation='' activation_alpha? activation_beta?"
)


@microsoft("FusedGemm", takes=MULTIPLIED)
def fused_gemm(o: Given) -> Any:
    y = gemm(o)
    if not o.activation:
        return y
    return activation_of(o.activation, o.activation_alpha, o.activation_beta)(y)
