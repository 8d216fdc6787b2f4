"""StableHLO ops in JAX, one rule an op: from JAX arrays and the op to its value."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jq.base.errors import JqError
from jq.ir import Op, dtype_of, ir, shape_of, stablehlo
from jq.ir.build import direction_of, integer, integers, reversed_axes
from jq.ir.ops.layout import Layout, groups_of, padding_of

lax: Any = jax.lax  # its annotations are too narrow for what it takes
Rule = Callable[[list[Any], Any], Any]


class Unsupported(JqError):
    """An op that this module does not know."""


def _broadcast(args: list[Any], op: Op) -> Any:
    result = op.results[0]
    return lax.broadcast_in_dim(args[0], shape_of(result), integers(op, "broadcast_dimensions"))


def _slice(args: list[Any], op: Op) -> Any:
    parts = (integers(op, k) for k in ("start_indices", "limit_indices", "strides"))
    return lax.slice(args[0], *parts)


def _pad(args: list[Any], op: Op) -> Any:
    keys = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return lax.pad(*args, list(zip(*(integers(op, k) for k in keys), strict=True)))


def _iota(_: list[Any], op: Op) -> Any:
    result, axis = op.results[0], op.attributes["iota_dimension"]
    return lax.broadcasted_iota(dtype_of(result), shape_of(result), ir.IntegerAttr(axis).value)


def _dot(args: list[Any], op: Op) -> Any:
    d = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    contract = (d.lhs_contracting_dimensions, d.rhs_contracting_dimensions)
    batch = (d.lhs_batching_dimensions, d.rhs_batching_dimensions)
    kind = dtype_of(op.results[0])
    return lax.dot_general(*args, (contract, batch), preferred_element_type=kind)


def _convolution(args: list[Any], op: Op) -> Any:
    d = Layout.of(op)
    spatial = len(d.input_spatial)
    if any(reversed_axes(op, spatial)):
        raise Unsupported("a reversed window")
    numbers = lax.ConvDimensionNumbers(
        (d.input_batch, d.input_feature, *d.input_spatial),
        (d.kernel_out, d.kernel_in, *d.kernel_spatial),
        (d.output_batch, d.output_feature, *d.output_spatial),
    )
    ones = (1,) * spatial
    return lax.conv_general_dilated(
        *args,
        window_strides=integers(op, "window_strides") or ones,
        padding=padding_of(op),
        lhs_dilation=integers(op, "lhs_dilation") or ones,
        rhs_dilation=integers(op, "rhs_dilation") or ones,
        dimension_numbers=numbers,
        feature_group_count=groups_of(op),
        batch_group_count=groups_of(op, "batch_group_count"),
        preferred_element_type=dtype_of(op.results[0]),
    )


def _fft(args: list[Any], op: Op) -> Any:
    kind = str(op.attributes["fft_type"]).rstrip(">").rpartition(" ")[2]
    return lax.fft(args[0], getattr(lax.FftType, kind), integers(op, "fft_length"))


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": lax.add,
    "subtract": lax.sub,
    "multiply": lax.mul,
    "divide": lax.div,
    "remainder": lax.rem,
    "maximum": lax.max,
    "minimum": lax.min,
    "power": lax.pow,
    "atan2": lax.atan2,
    "negate": lax.neg,
    "abs": lax.abs,
    "sign": lax.sign,
    "floor": lax.floor,
    "ceil": lax.ceil,
    "round_nearest_even": jnp.round,
    "exponential": lax.exp,
    "exponential_minus_one": lax.expm1,
    "log": lax.log,
    "log_plus_one": lax.log1p,
    "logistic": lax.logistic,
    "tanh": lax.tanh,
    "sine": lax.sin,
    "cosine": lax.cos,
    "sqrt": lax.sqrt,
    "rsqrt": lax.rsqrt,
    "cbrt": lax.cbrt,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "not": lax.bitwise_not,
    "shift_left": lax.shift_left,
    "shift_right_logical": lax.shift_right_logical,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "complex": lax.complex,
    "real": lax.real,
    "imag": lax.imag,
    "popcnt": lax.population_count,
    "count_leading_zeros": lax.clz,
    "tan": lax.tan,
    "round_nearest_afz": lax.round,
    "select": lambda p, a, b: jnp.where(p, a, b),
    "clamp": lax.clamp,
    "is_finite": lax.is_finite,
    "optimization_barrier": lambda x: x,
}

_COMPARISONS = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}
COMPOSITES = {"chlo.erf": lax.erf, "chlo.erfc": lax.erfc}

RULES: dict[str, Rule] = {
    "compare": lambda args, op: _COMPARISONS[direction_of(op)](*args),
    "convert": lambda args, op: args[0].astype(dtype_of(op.results[0])),
    "bitcast_convert": lambda args, op: lax.bitcast_convert_type(args[0], dtype_of(op.results[0])),
    "reduce_precision": lambda args, op: lax.reduce_precision(
        args[0], integer(op, "exponent_bits"), integer(op, "mantissa_bits")
    ),
    "fft": _fft,
    "reshape": lambda args, op: args[0].reshape(shape_of(op.results[0])),
    "transpose": lambda args, op: args[0].transpose(integers(op, "permutation")),
    "reverse": lambda args, op: lax.rev(args[0], integers(op, "dimensions")),
    "concatenate": lambda args, op: lax.concatenate(
        args, ir.IntegerAttr(op.attributes["dimension"]).value
    ),
    "dynamic_slice": lambda args, op: lax.dynamic_slice(
        args[0], args[1:], integers(op, "slice_sizes")
    ),
    "dynamic_update_slice": lambda args, op: lax.dynamic_update_slice(args[0], args[1], args[2:]),
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "pad": _pad,
    "iota": _iota,
    "dot_general": _dot,
    "convolution": _convolution,
}
