"""Sensitivity of a program's output to the rows of intermediate results, by differentiation."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.dtypes import canonicalize_dtype  # JAX narrows types of 64 bits

from jq.base.from_jax import check_threads
from jq.ir import Program, dtype_of, ir, shape_of
from jq.ir.autodiff.evaluate import compiled, reverse_mode, run

LEAST, MOST = 2.0**-100, 2.0**60  # squared gradients: rows are multiplied by them, and squared


class Sensitivity:
    """Computes how far each row of some values moves the program's output.

    For a random direction v of the output (signs), g = d<v, output> / d(value); the mean of g^2
    over v is the squared gain from that element to the output. Averaged over the axes given, which
    leaves one number a row: rows that never reach the output (padding) get 0."""

    def __init__(
        self, program: Program, values: Mapping[str, tuple[ir.Value, Sequence[int]]]
    ) -> None:
        """
        Args:
            values: results of ops of the outermost block by a name, with the axes to average over.

        Raises:
            Unsupported: the program holds an op that has no gradient here."""
        check_threads()
        self.program = program
        self._names: dict[Any, list[str]] = {}
        for name, (value, _) in values.items():
            self._names.setdefault(value, []).append(name)
        self.axes = {name: tuple(axes) for name, (_, axes) in values.items()}
        weights = _put(program.weights.values())
        blank = [jax.ShapeDtypeStruct(i.shape, canonicalize_dtype(i.dtype)) for i in program.inputs]
        # Compiled here: a program without a gradient is refused now, not in the first call.
        with reverse_mode():
            self._step = compiled(self._squares, blank, weights, self._signs(0))
        self._weights = weights

    def __call__(
        self, inputs: Sequence[np.ndarray], seed: int, rounds: int
    ) -> dict[str, np.ndarray]:
        """Mean squared gradient by op, in the shape of the result without the averaged axes."""
        found = [self.once(inputs, s) for s in range(seed * rounds, (seed + 1) * rounds)]
        return {k: np.mean([f[k] for f in found], axis=0) for k in self.axes}

    def once(self, inputs: Sequence[np.ndarray], seed: int) -> dict[str, Any]:
        """The results of `_of_rows`, for the direction of one seed."""
        found: dict[str, Any] = self._step(_put(inputs), self._weights, self._signs(seed))
        return found

    def _signs(self, seed: int) -> list[np.ndarray]:
        """A direction: signs for the outputs that are floats. Drawn by NumPy, since XLA compiles
        JAX's generator for as long as a small network."""
        random = np.random.default_rng(seed)
        floats = [o for o in self.program.outputs if jnp.issubdtype(o.dtype, jnp.floating)]
        return [2 * random.integers(0, 2, o.shape, np.int8) - 1 for o in floats]

    def _squares(self, inputs: Any, weights: Any, signs: Any) -> dict[str, Any]:
        """The squared gradients of one direction, averaged over axes."""
        taps = {
            names[0]: jnp.zeros(shape_of(value), canonicalize_dtype(dtype_of(value)))
            for value, names in self._names.items()
        }
        gradients = jax.grad(self._projected)(taps, inputs, weights, signs)
        first = {k: names[0] for names in self._names.values() for k in names}
        return {k: self._of_rows(gradients[tap], self.axes[k]) for k, tap in first.items()}

    def _of_rows(self, gradient: Any, axes: tuple[int, ...]) -> Any:
        found = jnp.square(gradient.astype(jnp.float32)).mean(axes)  # may leave float32, too
        found = jnp.where(jnp.isnan(found), MOST, found)
        return jnp.clip(found, jnp.where((gradient != 0).any(axes), LEAST, 0), MOST)

    def _projected(self, taps: Any, inputs: Any, weights: Any, signs: Any) -> Any:
        def edit(result: ir.Value, value: Any) -> Any:
            names = self._names.get(result)
            return value + taps[names[0]] if names else value

        outputs = run(self.program, inputs, weights, edit)[: len(self.program.outputs)]
        floats = (y for y in outputs if jnp.issubdtype(y.dtype, jnp.floating))
        return sum(
            ((y.astype(jnp.float32) * v).sum() for y, v in zip(floats, signs, strict=True)),
            jnp.zeros(()),
        )


def _put(arrays: Iterable[Any]) -> list[Any]:
    """Arrays of JAX. (`jnp.asarray` compiles a program for each shape.)"""
    return [jax.device_put(np.asarray(a)) for a in arrays]


class Reached(Sensitivity):
    """True for the rows that move the output at all, in `once`."""

    def _of_rows(self, gradient: Any, axes: tuple[int, ...]) -> Any:
        return (gradient != 0).any(axes)


class Directions(Sensitivity):
    """The gradients themselves, [rows, elements of a row]; the mean square of a row is its squared
    gain to the power `POWER`, so that few rows do not outweigh all others."""

    POWER = 0.5

    def _of_rows(self, gradient: Any, axes: tuple[int, ...]) -> Any:
        last = jnp.moveaxis(gradient.astype(jnp.float32), axes, range(-len(axes), 0))
        rows = last.reshape(-1, math.prod(last.shape[-len(axes) :]))
        rows = jnp.where(jnp.isfinite(rows), rows, 0)
        most = jnp.abs(rows).max(1, keepdims=True)
        unit = rows / jnp.where(most > 0, most, 1)
        mean = jnp.square(unit).mean(1, keepdims=True)
        gain = jnp.minimum(most, MOST**0.5) * jnp.sqrt(mean)
        return unit * jax.lax.rsqrt(jnp.where(mean > 0, mean, 1)) * gain**self.POWER
