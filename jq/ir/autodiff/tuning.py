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
DECAY, SQUARE_DECAY, TINY = 0.9, 0.999, 1e-12  # Adam's


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
        for axis, (size, count) in enumerate(zip(self.block, self.steps.shape, strict=True)):
            wide = scale if size == 1 else jnp.repeat(scale, size, axis)
            scale = jax.lax.slice_in_dim(wide, 0, count, axis=axis)
        return steps.astype(jnp.float32) * scale


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
        reference, factors = self._references(data), self.zero()
        state = factors, factors, factors
        order = np.random.default_rng(0)
        calls = [int(i) for _ in range(epochs) for i in order.permutation(len(data))]
        batches = [calls[i : i + batch] for i in range(0, len(calls), batch)]
        for done, numbers in enumerate(batches):
            slopes = [
                self._slope(state[0], _own(data[i]), reference(i), *self._given) for i in numbers
            ]
            slope = jax.tree.map(lambda *g: sum(g) / len(g), *slopes)
            state = _adam(state, slope, rate * (1 - done / len(batches)), done + 1.0)
            report((done + 1) / len(batches))
        return state[0]

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
        outputs = self._forward(inputs, list(changed.values()))
        errors = [
            _relative(y, r)
            for y, r in zip(outputs, references, strict=True)
            if jnp.issubdtype(r.dtype, jnp.floating)
        ]
        if not errors:
            raise Unsupported("the program has no float output")
        return sum(errors) / len(errors)


def _relative(y: Any, reference: Any) -> Any:
    y, reference = y.astype(jnp.float32), reference.astype(jnp.float32)
    return jnp.square(y - reference).sum() / jnp.maximum(jnp.square(reference).sum(), 1e-30)


@jax.jit
def _adam(state: Any, slope: Any, rate: Any, t: Any) -> Any:
    """One step of Adam (Kingma and Ba, "Adam: A Method for Stochastic Optimization", 2015)."""
    values, mean, square = state
    mean = jax.tree.map(lambda m, g: DECAY * m + (1 - DECAY) * g, mean, slope)
    square = jax.tree.map(lambda s, g: SQUARE_DECAY * s + (1 - SQUARE_DECAY) * g * g, square, slope)

    def moved(v: Any, m: Any, s: Any) -> Any:
        return v - rate * (m / (1 - DECAY**t)) / (jnp.sqrt(s / (1 - SQUARE_DECAY**t)) + TINY)

    return jax.tree.map(moved, values, mean, square), mean, square


def _like(shape: Sequence[int], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(tuple(shape), jax.dtypes.canonicalize_dtype(dtype))


def _own(inputs: Inputs) -> list[Any]:
    return [jnp.asarray(x) for x in inputs]


__all__ = ["Blocks", "Tuning", "Unsupported"]
