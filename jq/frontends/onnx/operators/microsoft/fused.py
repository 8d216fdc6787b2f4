"""Operators that ONNX Runtime's optimizer fuses (`com.microsoft`): activations, normalizations, and
matrix products whose operands are codes, or become codes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.frontends.onnx.operators.convolutions import conv
from jq.frontends.onnx.operators.indexing import from_front
from jq.frontends.onnx.operators.microsoft.attention import HOW, MASK, SHARED, attended
from jq.frontends.onnx.operators.normalization import of_rms, standard
from jq.frontends.onnx.operators.products import gemm, matmul
from jq.frontends.onnx.operators.quantize import dynamic, product_ratio, requantized
from jq.frontends.onnx.operators.recurrent import CELLS, MEMORY, STATES, lstm
from jq.frontends.onnx.operators.recurrent import activation as activation_of
from jq.frontends.onnx.quantized import dequantize, real, units
from jq.frontends.onnx.registry import MICROSOFT, Array, Given, microsoft, operators
from jq.frontends.onnx.values import Codes, as_jax, best_known, offset_of, plain, to_signed

# Defaults are those of ONNX Runtime's schemas, which the `onnx` package does not have.
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


QGEMM = (
    "a a_scale[] a_zero_point[] b b_scale[/ N] b_zero_point c[/ 1|N / 1|M 1|N]?"
    " y_scale[]? y_zero_point[]?; transA=0 transB=0 alpha=1.0"
)
TO_FLOAT = "a[... K] b[... K N] a_scale[] b_scale a_zero_point[]? b_zero_point? bias[N]?"
BY_RANGE = "a[... K] b[... K N] b_scale b_zero_point? bias[N]?"
BY_TYPE = " ".join(f"{w}_{part}[D / D rows]?" for w in "wr" for part in ("scale", "zero_point"))
LSTM = f"x[S B I] w[D I rows] r[D hidden_size rows] {STATES} {MEMORY} {BY_TYPE}; {CELLS}"
QATTENTION = (
    f"x[B S I] weights[I total] bias[total] x_scale[] weights_scale[/ total] mask_index{MASK}"
    f" x_zero_point[]? weights_zero_point[/ total]? past[2 B num_heads P size]?; {HOW} {SHARED}"
)
TABLES = ("words", "positions", "segment_table", "gamma", "beta")
SCALES = " ".join(f"{table}_{part}[]?" for part in ("scale", "zero_point") for table in TABLES)


@microsoft("QGemm", codes=True, takes=QGEMM)
def qgemm(o: Given) -> Any:
    """`c` is int32, in steps of both scales together; float without a scale of the result."""
    left, right = units(o, "a"), units(o, "b", 0 if o.transB else 1)
    y = matmul(left.T if o.transA else left, right.T if o.transB else right)
    y = y if o.c is None else y + jnp.asarray(plain(o.c)).astype(np.float32)
    ratio = product_ratio(o.a_scale, o.b_scale, o.y_scale, o.alpha)
    if o.y_scale is None:
        return y * ratio
    none = np.zeros((), o.a.dtype)
    return requantized(y, ratio, none if o.y_zero_point is None else o.y_zero_point, o.where)


@microsoft("MatMulIntegerToFloat", codes=True, takes=TO_FLOAT)
def matmul_integer_to_float(o: Given) -> Array:
    y = matmul(real(o, "a", -2), real(o, "b", -1))
    return y if o.bias is None else y + plain(o.bias)


@microsoft("DynamicQuantizeMatMul", codes=True, takes=BY_RANGE)
def dynamic_quantize_matmul(o: Given) -> Array:
    left = dequantize(*dynamic(as_jax(o.a), o.where), name=o.where)
    y = matmul(left, real(o, "b", -1))
    return y if o.bias is None else y + plain(o.bias)


@microsoft("DynamicQuantizeLSTM", codes=True, takes=f"{LSTM} input_forget=0")
def dynamic_quantize_lstm(o: Given) -> Any:
    """Weights are [directions, inputs, gates]. The whole input is quantized with one range, and
    the states of each step with one, as ONNX Runtime does on one thread: several divide the
    samples among them, and quantize each part with a range of its own."""
    names = ("b", "sequence_lens", "initial_h", "initial_c", "p")
    given: dict[str, Any] = {name: plain(getattr(o, name)) for name in names}
    data, lengths = as_jax(o.x), given["sequence_lens"]
    if lengths is not None:  # what no sample reaches has no part in the range
        reached = jnp.arange(data.shape[0]) < jnp.asarray(lengths).max()
        data = jnp.where(reached[:, None, None], data, jnp.zeros_like(data))
    return lstm(o.but(x=data, w=_by(o, "w"), r=_by(o, "r"), **given))


def _by(o: Given, name: str) -> Any:
    """The product of a float tensor, quantized as it comes, with the weights of a direction."""
    parts = (getattr(o, f"{name}{part}") for part in ("", "_scale", "_zero_point"))
    weights, scale, zero = parts
    kind = np.dtype(weights.dtype)
    step_of, zero_of = best_known(scale), None if zero is None else to_signed(best_known(zero))

    def product(x: Any, d: int) -> Any:
        left = dequantize(*dynamic(x, o.where), name=o.where)
        right = Codes(jnp.asarray(to_signed(weights))[d], kind)
        offset = None if zero_of is None else zero_of[d].astype(np.int32) + offset_of(kind)
        return matmul(left, dequantize(right, step_of[d], offset, axis=1, name=o.where))

    return product


@microsoft("QAttention", codes=True, takes=QATTENTION)
def quantized_attention(o: Given) -> Any:
    """One product of integers gives queries, keys and values; what follows is in float."""
    sums = matmul(units(o, "x"), units(o, "weights"))
    y = sums * product_ratio(o.x_scale, o.weights_scale) + plain(o.bias)
    mask, past = plain(o.mask_index), plain(o.past)
    return attended(o.but(mask_index=mask, past=past, attention_bias=None), y)


@microsoft("QEmbedLayerNormalization", codes=True, takes=f"{WORDS} {SCALES}; epsilon=1e-12")
def quantized_embed_layer_normalization(o: Given) -> Any:
    """The tables, gamma and beta are codes, with a scale and a zero point each."""
    floats = {name: real(o, name) for name in TABLES if getattr(o, name) is not None}
    given = {name: plain(getattr(o, name)) for name in ("ids", "segments", "mask")}
    return embed_layer_normalization(o.but(**floats, **given, position_ids=None))[:2]
