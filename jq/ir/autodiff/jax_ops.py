"""StableHLO ops in JAX, one rule an op: from JAX arrays and the op to its value.

Reductions go by JAX's own functions where it has one, else by any block."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.base.errors import JqError
from jq.ir import Op, Program, dense_array, dtype_of, ir, is_read, maker, shape_of, stablehlo
from jq.ir.build import direction_of, integer, integers
from jq.ir.ops.geometry import of_window
from jq.ir.ops.layout import Layout, Window, groups_of
from jq.ir.pointwise import IN_JAX
from jq.ir.values import combiner

lax: Any = jax.lax  # its annotations are too narrow for what it takes
Rule = Callable[[list[Any], Any], Any]


class Unsupported(JqError):
    """An op that this module does not know."""


def _kind(value: ir.Value) -> np.dtype[Any]:
    """The type of a value in JAX: 32 bits of 64, unless `jax_enable_x64` is set."""
    return jax.dtypes.canonicalize_dtype(dtype_of(value))


def _bitcast(args: list[Any], op: Op) -> Any:
    if any(_kind(v) != dtype_of(v) for v in (*op.operands, *op.results)):
        raise Unsupported("bits of 64-bit numbers")
    return lax.bitcast_convert_type(args[0], dtype_of(op.results[0]))


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
    return lax.broadcasted_iota(_kind(result), shape_of(result), ir.IntegerAttr(axis).value)


def _dot(args: list[Any], op: Op) -> Any:
    d = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    contract = (d.lhs_contracting_dimensions, d.rhs_contracting_dimensions)
    batch = (d.lhs_batching_dimensions, d.rhs_batching_dimensions)
    return lax.dot_general(*args, (contract, batch), preferred_element_type=dtype_of(op.results[0]))


def _convolution(args: list[Any], op: Op) -> Any:
    d, window = Layout.of(op), Window.of(op, shape_of(op.operands[1]))
    if any(window.reversal):
        raise Unsupported("a reversed window")
    numbers = lax.ConvDimensionNumbers(
        (d.input_batch, d.input_feature, *d.input_spatial),
        (d.kernel_out, d.kernel_in, *d.kernel_spatial),
        (d.output_batch, d.output_feature, *d.output_spatial),
    )
    return lax.conv_general_dilated(
        *args,
        window_strides=window.strides,
        padding=window.padding,
        lhs_dilation=window.spacing,
        rhs_dilation=window.dilations,
        dimension_numbers=numbers,
        feature_group_count=groups_of(op),
        batch_group_count=groups_of(op, "batch_group_count"),
        preferred_element_type=dtype_of(op.results[0]),
    )


def _fft(args: list[Any], op: Op) -> Any:
    kind = str(op.attributes["fft_type"]).rstrip(">").rpartition(" ")[2]
    return lax.fft(args[0], getattr(lax.FftType, kind), integers(op, "fft_length"))


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **{op: getattr(lax, name) for op, name in IN_JAX.items()},
    "complex": lax.complex,
    "optimization_barrier": lambda x: x,
    "round_nearest_even": jnp.round,
    "select": jnp.where,
    "chlo.erf": lax.erf,
    "chlo.erfc": lax.erfc,
}

_COMPARISONS = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}


def _each(function: Callable[..., Any]) -> Rule:
    return lambda args, op: function(*args)


RULES: dict[str, Rule] = {
    **{name: _each(function) for name, function in ELEMENTWISE.items()},
    "compare": lambda args, op: _COMPARISONS[direction_of(op)](*args),
    "convert": lambda args, op: args[0].astype(_kind(op.results[0])),
    "bitcast_convert": _bitcast,
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


Inside = Callable[[ir.Block, Sequence[Any]], list[Any]]  # what a block gives for its arguments
SUMS = {"add": "sum", "maximum": "max", "minimum": "min", "multiply": "prod"}
SUMS |= {"and": "all", "or": "any"}
WINDOWS = {"add": lax.add, "maximum": lax.max, "minimum": lax.min}


def reduce(args: list[Any], op: Op, program: Program, inside: Inside) -> Any:
    """Places have a gradient of zero: of `argmax` only they are read."""
    half, axes, name = len(args) // 2, integers(op, "dimensions"), combiner(op)
    if half == 1 and name in SUMS:
        value = getattr(jnp, SUMS[name])(args[0], axis=axes)
        return [ELEMENTWISE[name](value, args[1]).astype(dtype_of(op.results[0]))]
    if not is_read(*(r for r in op.results if dtype_of(r).kind not in "iub")):
        args = [lax.stop_gradient(a) for a in args]
    elif any(dtype_of(r).kind in "iub" for r in op.results):
        raise Unsupported("a reduction to values and their places has no gradient here")

    def combine(first: Any, second: Any) -> Any:
        return tuple(inside(op.regions[0].blocks[0], (*first, *second)))

    return lax.reduce(tuple(args[:half]), tuple(args[half:]), combine, axes)


def reduce_window(args: list[Any], op: Op, program: Program, inside: Inside) -> Any:
    """Sums and extremes of windows; of any function, those that begin or end at each element."""
    name, g = combiner(op), of_window(op)
    if len(args) == 2 and name in WINDOWS:
        if {*g.interior, *g.dilation} - {1} and name != "add":
            raise Unsupported("extremes of dilated windows have no gradient here")
        figures = g.window, g.stride, g.padding, g.interior, g.dilation
        return [lax.reduce_window(args[0], _splat(op.operands[1]), WINDOWS[name], *figures)]
    found = _cumulative(op)
    if len(args) != 2 or found is None:
        raise Unsupported("windows of other functions than sums and extremes have no gradient here")
    axis, reverse = found

    def one(a: Any, b: Any) -> Any:
        return inside(op.regions[0].blocks[0], (a, b))[0]

    def combine(a: Any, b: Any) -> Any:
        return jax.vmap(one)(a.ravel(), b.ravel()).reshape(a.shape)

    return [lax.associative_scan(combine, args[0], axis=axis, reverse=reverse)]


def _cumulative(op: Op) -> tuple[int, bool] | None:
    """The axis along which all elements up to each one are reduced, and whether from its end."""
    shape, g = shape_of(op.operands[0]), of_window(op)
    axes = [a for a, n in enumerate(g.window) if n > 1]
    if len(axes) != 1 or {*g.stride, *g.interior, *g.dilation} - {1}:
        return None
    axis, reach = axes[0], shape[axes[0]] - 1
    plain = all(pair == (0, 0) for a, pair in enumerate(g.padding) if a != axis)
    if g.window[axis] != reach + 1 or not plain or g.padding[axis] not in ((reach, 0), (0, reach)):
        return None
    return axis, g.padding[axis][0] == 0


def _splat(value: ir.Value) -> np.ndarray:
    """The value of a splat constant, perhaps after a broadcast of one number to one number."""
    while broadcast := maker(value, "stablehlo.broadcast_in_dim"):
        value = broadcast.operands[0]
    array = dense_array(value) if maker(value, "stablehlo.constant") else None
    if array is None:
        raise Unsupported("a start that is not a constant")
    return array.reshape(())
