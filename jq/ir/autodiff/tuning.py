"""Scales of stored weights by gradient descent on the program's output, in JAX."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.ir import Program
from jq.ir.autodiff.evaluate import Unsupported, compiled, reverse_mode, run

Factors = dict[str, Any]  # f32 of a weight's scales, by name: 1 + factor multiplies them
Inputs = Sequence[np.ndarray]
ROOM = 256 << 20  # bytes of outputs that are kept; beyond, they are computed again
TINY = 1e-12  # Adam's


@dataclass(frozen=True)
class Blocks:
    """A weight as steps[i] * scale[i // block], axis by axis.

    Attributes:
        steps: integers (codes without their zero points), of the weight's shape.
        scale: f32, one for each block.
        block: size along every axis; the last along one may be short.
    """

    steps: np.ndarray
    scale: np.ndarray
    block: tuple[int, ...]

    def real(self, steps: Any, scale: Any) -> Any:
        return steps.astype(jnp.float32) * spread(scale, self.block, self.steps.shape)


def spread(grid: Any, block: Sequence[int], shape: Sequence[int]) -> Any:
    """A number for each block, given to each element of an array of `shape`."""
    for axis, (size, count) in enumerate(zip(block, shape, strict=True)):
        wide = grid if size == 1 else jnp.repeat(grid, size, axis)
        grid = jax.lax.slice_in_dim(wide, 0, count, axis=axis)
    return grid


class Tuning:
    """The error of a program's float outputs with stored weights, and its gradient.

        error(x) = mean over outputs of  |y'(x) - y(x)|^2 / |y(x)|^2

    where y has the program's own weights and y' those of `stored`, with scales times 1 + factor.
    """

    def __init__(self, program: Program, stored: Mapping[str, Blocks]) -> None:
        """
        Raises:
            Unsupported: the program holds an op that has no gradient here, or no float output.
        """
        self.program, self.stored = program, stored
        self._weights = [jnp.asarray(w) for w in program.weights.values()]
        self._steps = {k: jnp.asarray(b.steps, jnp.int8) for k, b in stored.items()}
        self._scales = {k: jnp.asarray(b.scale, jnp.float32) for k, b in stored.items()}
        self._given = self._weights, self._steps, self._scales
        blank = [_like(i.shape, i.dtype) for i in program.inputs]
        # Compiled here: a program without a gradient is refused now, not in the first call.
        self._reference = compiled(self._forward, blank, self._weights)
        shape = jax.eval_shape(self._forward, blank, self._weights)
        arguments = self.zero(), blank, shape, *self._given
        with reverse_mode():
            self._slope = compiled(jax.grad(self._error), *arguments)
        self._error_of = compiled(self._error, *arguments)

    def zero(self) -> Factors:
        return {k: jnp.zeros(b.scale.shape, jnp.float32) for k, b in self.stored.items()}

    def error(self, factors: Factors, data: Sequence[Inputs]) -> float:
        """The mean over samples."""
        reference = self._references(data)
        found = [
            self._error_of(factors, _own(x), reference(i), *self._given) for i, x in enumerate(data)
        ]
        return float(np.mean(found))

    def descend(
        self,
        data: Sequence[Inputs],
        *,
        rate: float,
        epochs: int,
        batch: int,
        report: Callable[[float], None] = lambda share: None,
    ) -> Factors:
        """Factors after Adam with a step for every `batch` samples, `rate` falling to 0."""
        import optax

        reference, factors = self._references(data), self.zero()
        order = np.random.default_rng(0)
        calls = [int(i) for _ in range(epochs) for i in order.permutation(len(data))]
        batches = [calls[i : i + batch] for i in range(0, len(calls), batch)]
        adam = optax.adam(optax.linear_schedule(rate, 0, len(batches)), eps=TINY)
        state, move = adam.init(factors), jax.jit(adam.update)
        for done, numbers in enumerate(batches):
            slopes = [
                self._slope(factors, _own(data[i]), reference(i), *self._given) for i in numbers
            ]
            slope = jax.tree.map(lambda *g: sum(g) / len(g), *slopes)
            changes, state = move(slope, state)
            factors = optax.apply_updates(factors, changes)
            report((done + 1) / len(batches))
        return factors

    def _references(self, data: Sequence[Inputs]) -> Callable[[int], Any]:
        """The program's own outputs by number of the sample, kept where there is room."""

        def find(number: int) -> Any:
            return self._reference(_own(data[number]), self._weights)

        size = sum(math.prod(o.shape) * 4 for o in self.program.outputs)
        return cache(find) if size * len(data) <= ROOM else find

    def _forward(self, inputs: Any, weights: Any) -> list[Any]:
        outputs = run(self.program, inputs, weights, lambda _, value: value)
        return outputs[: len(self.program.outputs)]

    def _error(
        self, factors: Any, inputs: Any, references: Any, weights: Any, steps: Any, scales: Any
    ) -> Any:
        changed = dict(zip(self.program.weights, weights, strict=True))
        for name, blocks in self.stored.items():
            real = blocks.real(steps[name], scales[name] * (1 + factors[name]))
            changed[name] = real.astype(changed[name].dtype)
        return mean_error(self._forward(inputs, list(changed.values())), references)


def mean_error(
    outputs: Sequence[Any], references: Sequence[Any], gains: Sequence[Any] | None = None
) -> Any:
    """The mean of `_relative` over float outputs.

    Raises:
        Unsupported: there is none.
    """
    made = zip(outputs, references, gains or [1.0] * len(outputs), strict=True)
    errors = [_relative(y, r, g) for y, r, g in made if jnp.issubdtype(r.dtype, jnp.floating)]
    if not errors:
        raise Unsupported("there is no float output")
    return sum(errors) / len(errors)


def _relative(y: Any, reference: Any, gain: Any) -> Any:
    """|y - reference|^2 / |reference|^2, in float32; `gain` weighs elements."""
    y, reference = y.astype(jnp.float32), reference.astype(jnp.float32)
    whole = (gain * jnp.square(reference)).sum()
    return (gain * jnp.square(y - reference)).sum() / jnp.maximum(whole, 1e-30)


def _like(shape: Sequence[int], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(tuple(shape), jax.dtypes.canonicalize_dtype(dtype))


def _own(inputs: Inputs) -> list[Any]:
    return [jnp.asarray(x) for x in inputs]


__all__ = ["Blocks", "Tuning", "Unsupported", "mean_error", "spread"]
