"""Arithmetic, comparison and logic, element by element."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jq.frontends.onnx.registry import Array, Given, operator, operators

# Those that NumPy calls by the same word, or by another.
_ALIKE = "Abs Ceil Cos Cosh Exp Floor IsNaN Log Sign Sin Sinh Sqrt Tan Tanh"
_INVERSE = "cos cosh sin sinh tan tanh"
_UNARY: dict[str, Callable[[Any], Any]] = {
    **{name: getattr(jnp, name.lower()) for name in _ALIKE.split()},
    **{f"A{name}": getattr(jnp, f"arc{name}") for name in _INVERSE.split()},
    "BitwiseNot": jnp.bitwise_not,
    "Erf": lax.erf,
    "Neg": jnp.negative,
    "Not": jnp.logical_not,
    "Reciprocal": lambda x: jnp.ones((), x.dtype) / x,
    "Relu": lambda x: jnp.maximum(x, jnp.zeros((), x.dtype)),
    "Round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "Sigmoid": lambda x: jax.nn.sigmoid(x),
    "Softplus": lambda x: jnp.logaddexp(x, jnp.zeros((), x.dtype)),
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    **{name: getattr(jnp, f"logical_{name.lower()}") for name in ("And", "Or", "Xor")},
    **{name: getattr(jnp, name.lower()) for name in ("Add", "Equal", "Greater", "Less")},
    **{f"Bitwise{n}": getattr(jnp, f"bitwise_{n.lower()}") for n in ("And", "Or", "Xor")},
    "GreaterOrEqual": jnp.greater_equal,
    "LessOrEqual": jnp.less_equal,
    "Mul": jnp.multiply,
    "Sub": jnp.subtract,
}


def _define(name: str, function: Callable[..., Any], takes: str) -> None:
    @operator(name, takes=takes)
    def apply(o: Given) -> Array:
        return function(*(jnp.asarray(vars(o)[each]) for each in takes.split()))


for _takes, _functions in (("x", _UNARY), ("a b", _BINARY)):
    for _name, _function in _functions.items():
        _define(_name, _function, _takes)


@operator("Mod")
def mod(a: Array, b: Array, *, fmod: int = 0) -> Array:
    """`fmod`: the result has the sign of `a`, otherwise that of `b`."""
    return lax.rem(*jnp.broadcast_arrays(a, b)) if fmod else jnp.mod(a, b)


@operator("Pow")
def power(x: Array, y: Array) -> Array:
    """Powers in the type of `x`, whatever that of `y`; known small whole exponents are products."""
    if isinstance(y, np.ndarray) and y.size == 1 and not isinstance(x, np.ndarray):
        exponent = float(y.reshape(()))
        shape = jnp.broadcast_shapes(x.shape, y.shape)
        if exponent.is_integer() and 0 <= exponent <= 4:
            return jnp.broadcast_to(lax.integer_pow(x, int(exponent)), shape)
        if exponent == 0.5:
            return jnp.broadcast_to(jnp.sqrt(x), shape)
    x, y = jnp.asarray(x), jnp.asarray(y)
    if x.dtype.kind in "iu" and y.dtype.kind in "iu":
        return jnp.power(x, y.astype(x.dtype))
    if x.dtype.kind in "iu":
        return jnp.power(x.astype(y.dtype), y).astype(x.dtype)
    return jnp.power(x, y.astype(x.dtype))


@operator("BitShift")
def bit_shift(x: Array, y: Array, *, direction: str) -> Array:
    x, y = jnp.asarray(x), jnp.asarray(y)
    last = np.asarray(x.dtype.itemsize * 8 - 1, y.dtype)
    if direction == "RIGHT" and x.dtype.kind == "i":
        return jnp.right_shift(x, jnp.minimum(y, last).astype(x.dtype))
    shift = jnp.left_shift if direction == "LEFT" else lax.shift_right_logical
    moved = shift(*jnp.broadcast_arrays(x, jnp.minimum(y, last).astype(x.dtype)))
    return jnp.where(y > last, jnp.zeros((), x.dtype), moved)


@operator("Clip")
def clip(x: Array, min: Array = None, max: Array = None) -> Array:
    """Clips to [min, max]; all becomes `max` where `min` is above it."""
    x = jnp.asarray(x)
    if min is not None:
        x = jnp.maximum(x, jnp.asarray(min, x.dtype))
    return x if max is None else jnp.minimum(x, jnp.asarray(max, x.dtype))


@operator("CumSum", "CumProd", takes="x axis!; exclusive reverse")
def cumulative(o: Given) -> Array:
    x, at, first, run = jnp.asarray(o.x), int(o.axis.reshape(())), 0, lax.cumsum
    if o.node.node.op == "CumProd":
        first, run = 1, lax.cumprod
    if not -x.ndim <= at < x.ndim:
        raise IndexError(f"axis {at} of {x.ndim}")
    if o.exclusive:
        by = [(0, 0, 0)] * x.ndim
        by[at] = (-1, 1, 0) if o.reverse else (1, -1, 0)
        x = lax.pad(x, np.asarray(first, x.dtype), by)
    return run(x, axis=at % x.ndim, reverse=bool(o.reverse))


operators(
    {
        # Integers are divided towards zero.
        "Div": lambda a, b: lax.div(*jnp.broadcast_arrays(a, b)),
        "IsInf": lambda x, *, detect_negative, detect_positive: (
            jnp.isinf(x) & jnp.where(x > 0, bool(detect_positive), bool(detect_negative))
        ),
        "Max": lambda *xs: reduce(jnp.maximum, map(jnp.asarray, xs)),
        "Min": lambda *xs: reduce(jnp.minimum, map(jnp.asarray, xs)),
        "Sum": lambda *xs: reduce(jnp.add, map(jnp.asarray, xs)),
        "Mean": lambda *xs: (
            reduce(jnp.add, map(jnp.asarray, xs)) / np.asarray(len(xs), xs[0].dtype)
        ),
        "Where": lambda condition, x, y: jnp.where(condition, x, y),
    }
)
