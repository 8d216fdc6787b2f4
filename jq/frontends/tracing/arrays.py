"""`ArrayOps` in JAX, so that fake quantization is the definition of the format itself.

Constants are built inside the trace, never closed over: a composite would take a captured array
for one of its operands."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from jq.formats.arrays import arrays_of


def _op(function: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that JAX has, as a method."""

    def apply(ops: Any, *operands: Any) -> Any:
        return function(*arrays_of(ops, operands))

    return apply


class JaxOps:
    """`ArrayOps` on JAX arrays."""

    def constant(self, value: np.ndarray) -> jax.Array:
        value = np.asarray(value)
        if value.size != 1:
            raise TypeError("only constants of one element: larger ones would become operands")
        return lax.full(value.shape, value.item(), value.dtype)

    def pad(
        self, x: jax.Array, value: jax.Array, low: Sequence[int], high: Sequence[int]
    ) -> jax.Array:
        return lax.pad(x, value, [(a, b, 0) for a, b in zip(low, high, strict=True)])

    def concatenate(self, xs: Sequence[jax.Array], axis: int) -> jax.Array:
        return lax.concatenate(list(xs), axis)

    def take(self, table: np.ndarray, index: jax.Array) -> jax.Array:
        raise TypeError("a table would become an operand")

    shape = _op(lambda x: tuple(x.shape))
    dtype = _op(lambda x: np.dtype(x.dtype))
    convert = _op(lax.convert_element_type)
    bitcast = _op(lax.bitcast_convert_type)
    reshape = _op(lambda x, shape: lax.reshape(x, tuple(shape)))
    transpose = _op(lambda x, perm: lax.transpose(x, tuple(perm)))
    broadcast = _op(lambda x, shape, dims: lax.broadcast_in_dim(x, tuple(shape), tuple(dims)))
    slice = _op(lambda x, start, limit: lax.slice(x, tuple(start), tuple(limit)))
    add = _op(lax.add)
    sub = _op(lax.sub)
    mul = _op(lax.mul)
    # The barrier keeps XLA from multiplying by the inverse of a divisor that it knows.
    div = _op(lambda a, b: lax.div(a, lax.optimization_barrier(b)))
    maximum = _op(lax.max)
    minimum = _op(lax.min)
    abs = _op(lax.abs)
    round_even = _op(lambda a: lax.round(a, lax.RoundingMethod.TO_NEAREST_EVEN))
    bit_and = _op(lax.bitwise_and)
    bit_or = _op(lax.bitwise_or)
    shift_left = _op(lax.shift_left)
    shift_right = _op(lax.shift_right_logical)
    equal = _op(lax.eq)
    select = _op(lax.select)
    reduce_max = _op(lambda x, axes: _kept(lax.reduce_max(x, tuple(axes)), x, axes))
    reduce_min = _op(lambda x, axes: _kept(lax.reduce_min(x, tuple(axes)), x, axes))


def _kept(y: jax.Array, x: jax.Array, axes: Sequence[int]) -> jax.Array:
    return lax.reshape(y, tuple(1 if i in axes else n for i, n in enumerate(x.shape)))
