"""`ArrayOps` in JAX, so that fake quantization is the definition of the format itself.

Constants are built inside the trace, never closed over: a composite would take a captured array
for one of its operands.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax


class JaxOps:
    """`ArrayOps` on JAX arrays."""

    def constant(self, value: np.ndarray) -> jax.Array:
        value = np.asarray(value)
        if value.size != 1:
            raise TypeError("only constants of one element: larger ones would become operands")
        return lax.full(value.shape, value.item(), value.dtype)

    def shape(self, x: jax.Array) -> tuple[int, ...]:
        return tuple(x.shape)

    def dtype(self, x: jax.Array) -> np.dtype[Any]:
        return np.dtype(x.dtype)

    def convert(self, x: jax.Array, dtype: Any) -> jax.Array:
        return lax.convert_element_type(x, dtype)

    def bitcast(self, x: jax.Array, dtype: Any) -> jax.Array:
        return lax.bitcast_convert_type(x, dtype)

    def reshape(self, x: jax.Array, shape: Sequence[int]) -> jax.Array:
        return lax.reshape(x, tuple(shape))

    def transpose(self, x: jax.Array, perm: Sequence[int]) -> jax.Array:
        return lax.transpose(x, tuple(perm))

    def broadcast(self, x: jax.Array, shape: Sequence[int], dims: Sequence[int]) -> jax.Array:
        return lax.broadcast_in_dim(x, tuple(shape), tuple(dims))

    def slice(self, x: jax.Array, start: Sequence[int], limit: Sequence[int]) -> jax.Array:
        return lax.slice(x, tuple(start), tuple(limit))

    def pad(
        self, x: jax.Array, value: jax.Array, low: Sequence[int], high: Sequence[int]
    ) -> jax.Array:
        return lax.pad(x, value, [(a, b, 0) for a, b in zip(low, high, strict=True)])

    def concatenate(self, xs: Sequence[jax.Array], axis: int) -> jax.Array:
        return lax.concatenate(list(xs), axis)

    def take(self, table: np.ndarray, index: jax.Array) -> jax.Array:
        raise TypeError("a table would become an operand")

    def add(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.add(a, b)

    def sub(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.sub(a, b)

    def mul(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.mul(a, b)

    def div(self, a: jax.Array, b: jax.Array) -> jax.Array:
        """The barrier keeps XLA from multiplying by the inverse of a divisor that it knows."""
        return lax.div(a, lax.optimization_barrier(b))

    def maximum(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.max(a, b)

    def minimum(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.min(a, b)

    def abs(self, a: jax.Array) -> jax.Array:
        return lax.abs(a)

    def round_even(self, a: jax.Array) -> jax.Array:
        return lax.round(a, lax.RoundingMethod.TO_NEAREST_EVEN)

    def bit_and(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.bitwise_and(a, b)

    def bit_or(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.bitwise_or(a, b)

    def shift_left(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.shift_left(a, b)

    def shift_right(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.shift_right_logical(a, b)

    def equal(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.eq(a, b)

    def select(self, pred: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.select(pred, a, b)

    def reduce_max(self, x: jax.Array, axes: Sequence[int]) -> jax.Array:
        return self._keep(lax.reduce_max(x, tuple(axes)), x, axes)

    def reduce_min(self, x: jax.Array, axes: Sequence[int]) -> jax.Array:
        return self._keep(lax.reduce_min(x, tuple(axes)), x, axes)

    def _keep(self, y: jax.Array, x: jax.Array, axes: Sequence[int]) -> jax.Array:
        return lax.reshape(y, tuple(1 if i in axes else n for i, n in enumerate(x.shape)))
