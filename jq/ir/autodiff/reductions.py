"""Reductions of StableHLO in JAX: by JAX's own functions where it has one, else by any block."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.ir import Op, Program, dense_array, dtype_of, ir, is_read, maker, shape_of
from jq.ir.autodiff.jax_ops import ELEMENTWISE, Unsupported
from jq.ir.build import integers, padding_pairs

lax: Any = jax.lax  # its annotations are too narrow for what it takes
Inside = Callable[[ir.Block, Sequence[Any]], list[Any]]  # what a block gives for its arguments
SUMS = {"add": "sum", "maximum": "max", "minimum": "min", "multiply": "prod"}
SUMS |= {"and": "all", "or": "any"}
WINDOWS = {"add": lax.add, "maximum": lax.max, "minimum": lax.min}


def combiner(op: Op) -> str:
    """The op that combines two values; empty where it takes several."""
    block = op.regions[0].blocks[0]
    first = block.operations[0].operation
    if len(block.operations) != 2 or list(first.operands) != list(block.arguments):
        return ""
    return str(first.name).removeprefix("stablehlo.")


def reduce(args: list[Any], op: Op, program: Program, inside: Inside) -> Any:
    """Places have a gradient of zero: of `argmax` only they are read."""
    half, axes, name = len(args) // 2, integers(op, "dimensions"), combiner(op)
    if half == 1 and name in SUMS:
        value = getattr(jnp, SUMS[name])(args[0], axis=axes)
        return [ELEMENTWISE[name](value, args[1]).astype(dtype_of(op.results[0]))]
    if not _reads_floats(op):
        args = [lax.stop_gradient(a) for a in args]
    elif any(dtype_of(r).kind in "iub" for r in op.results):
        raise Unsupported("a reduction to values and their places has no gradient here")

    def combine(first: Any, second: Any) -> Any:
        return tuple(inside(op.regions[0].blocks[0], (*first, *second)))

    return lax.reduce(tuple(args[:half]), tuple(args[half:]), combine, axes)


def _reads_floats(op: Op) -> bool:
    floats = [r for r in op.results if dtype_of(r).kind not in "iub"]
    return is_read(*floats)


def reduce_window(args: list[Any], op: Op, program: Program, inside: Inside) -> Any:
    """Sums and extremes of windows; of any function, those that begin or end at each element."""
    name, ones = combiner(op), (1,) * args[0].ndim
    if len(args) == 2 and name in WINDOWS:
        whole = lax.reduce_window(
            args[0],
            _splat(op.operands[1]),
            WINDOWS[name],
            integers(op, "window_dimensions"),
            integers(op, "window_strides") or ones,
            padding_pairs(op, args[0].ndim),
            integers(op, "base_dilations") or ones,
            integers(op, "window_dilations") or ones,
        )
        return [whole]
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
    shape, window = shape_of(op.operands[0]), integers(op, "window_dimensions")
    axes = [a for a, n in enumerate(window) if n > 1]
    moves = ("window_strides", "base_dilations", "window_dilations")
    if len(axes) != 1 or any(set(integers(op, k)) - {1} for k in moves):
        return None
    axis, reach = axes[0], shape[axes[0]] - 1
    pads = padding_pairs(op, len(shape))
    plain = all(pair == (0, 0) for a, pair in enumerate(pads) if a != axis)
    if window[axis] != reach + 1 or not plain or pads[axis] not in ((reach, 0), (0, reach)):
        return None
    return axis, pads[axis][0] == 0


def _splat(value: ir.Value) -> np.ndarray:
    """The value of a splat constant, perhaps after a broadcast of one number to one number."""
    while broadcast := maker(value, "stablehlo.broadcast_in_dim"):
        value = broadcast.operands[0]
    array = dense_array(value) if maker(value, "stablehlo.constant") else None
    if array is None:
        raise Unsupported("a start that is not a constant")
    return array.reshape(())
