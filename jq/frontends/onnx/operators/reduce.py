"""Reductions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.frontends.onnx.operators.shapes import ints
from jq.frontends.onnx.registry import Array, Given, Known, operator, operators
from jq.frontends.onnx.values import is_float, limits_of

Reduce = Callable[..., Any]


def _log_sum_exp(x: Any, **how: Any) -> Any:
    wide = x if is_float(x.dtype) else x.astype(np.float32)
    return jax.scipy.special.logsumexp(wide, **how).astype(x.dtype)


def _sum(x: Any, **how: Any) -> Any:
    return jnp.sum(x, dtype=x.dtype, **how)


def _mean(x: Any, **how: Any) -> Any:
    count = np.prod([x.shape[a] for a in how["axis"]], dtype=np.int64)
    total = _sum(x, **how)
    return lax.div(total, jnp.full(total.shape, count, total.dtype))


_REDUCTIONS: dict[str, Reduce] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceProd": lambda x, **how: jnp.prod(x, dtype=x.dtype, **how),
    "ReduceL1": lambda x, **how: _sum(jnp.abs(x), **how),
    "ReduceL2": lambda x, **how: jnp.sqrt(_sum(x * x, **how)).astype(x.dtype),
    "ReduceSumSquare": lambda x, **how: _sum(x * x, **how),
    "ReduceLogSum": lambda x, **how: jnp.log(_sum(x, **how)).astype(x.dtype),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": lambda x, **how: _extreme(jnp.max, jnp.any, x, **how),
    "ReduceMin": lambda x, **how: _extreme(jnp.min, jnp.all, x, **how),
}


def _extreme(function: Reduce, of_bools: Reduce, x: Any, **how: Any) -> Any:
    """The extreme of nothing, which changes no result: the type's least or greatest number."""
    if x.dtype == bool:
        return of_bools(x, **how)
    nothing = {} if x.size else {"initial": limits_of(x.dtype)[int(function is jnp.min)]}
    return function(x, **nothing, **how)


def _define(name: str, function: Reduce) -> None:
    @operator(name)
    def apply(
        data: Array, axes: Known = None, *, keepdims: int, noop_with_empty_axes: int = 0
    ) -> Array:
        x = jnp.asarray(data)
        chosen = () if axes is None else tuple(a % x.ndim for a in ints(axes))
        if not chosen:
            if noop_with_empty_axes:
                return function(x[None], axis=(0,), keepdims=False)
            chosen = tuple(range(x.ndim))
        return function(x, axis=chosen, keepdims=bool(keepdims))


for _name, _function in _REDUCTIONS.items():
    _define(_name, _function)


@operator("ArgMax", "ArgMin", takes="x; axis keepdims select_last_index=0")
def index_of_extreme(o: Given) -> Array:
    """Found in 32 bits, which IREE does faster; the result is i64 as ONNX has it."""
    x, last, axis = jnp.asarray(o.x), o.select_last_index, o.axis % max(1, jnp.ndim(o.x))
    function = lax.argmax if o.node.node.op == "ArgMax" else lax.argmin
    found = function(jnp.flip(x, axis) if last else x, axis, np.int32)
    found = jnp.expand_dims(found, axis) if o.keepdims else found
    return (x.shape[axis] - 1 - found if last else found).astype(np.int64)


def along(function: Reduce, x: Any, axis: int = -1, opset: int = 13) -> Any:
    """`function` along an axis; before version 13 all axes from it on are one."""
    x = jnp.asarray(x)
    if opset >= 13:
        return function(x, axis=axis)
    axis %= max(x.ndim, 1)
    rows = int(np.prod(x.shape[:axis], dtype=np.int64))
    return function(x.reshape(rows, -1), axis=1).reshape(x.shape)


def _all_space(x: Any) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


def _largest(x: Any, axis: int) -> Any:
    return jax.nn.one_hot(jnp.argmax(x, axis), x.shape[axis], dtype=x.dtype, axis=axis)


operators(
    {
        "GlobalAveragePool": lambda x: jnp.mean(x, _all_space(x), keepdims=True),
        "GlobalLpPool": lambda x, *, p: (
            jnp.sum(jnp.abs(x) ** p, _all_space(x), keepdims=True) ** (1 / p)
        ).astype(x.dtype),
        "Softmax": lambda x, *, axis, node: along(jax.nn.softmax, x, axis, node.version),
        "LogSoftmax": lambda x, *, axis, node: along(jax.nn.log_softmax, x, axis, node.version),
        "Hardmax": lambda x, *, axis, node: along(_largest, x, axis, node.version),
    }
)
operators({"GlobalMaxPool": lambda x: jnp.max(x, _all_space(x), keepdims=True)}, moves=True)
