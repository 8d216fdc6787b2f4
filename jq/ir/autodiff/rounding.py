"""Codes and scales of weights that are learned together, by gradient descent on a region's outputs.

    w' = scale * (1 + factor) * (clip(round(latent)) - zero - shift)

A latent number is what a code is the rounding of. Rounding has the gradient of 1 (straight
through), and a step moves each latent number by the sign of its gradient alone, so that those near
the middle between two codes change sides where that helps: Cheng et al., "Optimize Weight Rounding
via Signed Gradient Descent for the Quantization of LLMs", 2023. Factors take steps of Adam."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.base.from_jax import check_threads
from jq.ir import shape_of
from jq.ir.autodiff.evaluate import Unsupported, compiled, reverse_mode, spread
from jq.ir.autodiff.regions import Region

ROOM = 256 << 20  # bytes of outputs that are kept; beyond, they are computed again
NEAR = 0.4  # from its code, a latent number is at most at first: no single step changes a code
Sample = tuple[Sequence[Any], Sequence[Any], Sequence[Any]]
Parameters = dict[str, dict[str, Any]]  # `latent` and `factor` of each weight


def mean_error(
    outputs: Sequence[Any], references: Sequence[Any], gains: Sequence[Any] | None = None
) -> Any:
    """The mean of `_relative` over float outputs; `Unsupported` where there is none."""
    made = zip(outputs, references, gains or [1.0] * len(outputs), strict=True)
    errors = [_relative(y, r, g) for y, r, g in made if jnp.issubdtype(r.dtype, jnp.floating)]
    if not errors:
        raise Unsupported("there is no float output")
    return sum(errors) / len(errors)


def relative_error(pairs: Iterable[tuple[Sequence[Any], Sequence[Any]]]) -> float:
    """The mean of `mean_error` over the outputs of all samples, with codes and of floats."""
    return float(np.mean([mean_error(ours, theirs) for ours, theirs in pairs]))


def _relative(y: Any, reference: Any, gain: Any) -> Any:
    """|y - reference|^2 / |reference|^2, in float32; `gain` weighs elements."""
    own = np if isinstance(y, np.ndarray) else jnp  # XLA would compile each op for these shapes
    y, reference = y.astype(np.float32), reference.astype(np.float32)
    whole = (gain * own.square(reference)).sum()
    return (gain * own.square(y - reference)).sum() / own.maximum(whole, 1e-30)


@dataclass(frozen=True)
class Codes:
    """A weight in codes: real = scale * (code - zero).

    Codes f32 have the weight's shape, scale and zero f32 one number for each `block`, whose last
    along an axis may be short; `limits` are the least and the largest code; `levels`, ascending
    numbers that codes 0, 1, ... stand for (scales stay then). With `free`, zeros are no codes, and
    are learned like scales: `shift`, in codes."""

    codes: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    block: tuple[int, ...]
    limits: tuple[int, int]
    levels: np.ndarray | None = None
    free: bool = False

    @property
    def fixed(self) -> tuple[Any, ...]:
        """Arrays that stay as they are."""
        return jnp.asarray(self.scale), jnp.asarray(self.zero)

    def begin(self, weight: Any) -> dict[str, Any]:
        """Latent numbers: where the weight lies, but on the side of its code."""
        wide = partial(spread, block=self.block, shape=self.codes.shape)
        aim = jnp.asarray(weight, jnp.float32) / wide(jnp.asarray(self.scale))
        if self.levels is not None:
            aim = jnp.interp(aim, self.levels, np.arange(len(self.levels)))
        away = jnp.clip(aim + wide(jnp.asarray(self.zero)) - self.codes, -NEAR, NEAR)
        return self.value() | {"latent": self.codes + away}

    def value(self) -> dict[str, Any]:
        """Parameters of the codes as they are."""
        moved = ("factor", "shift") if self.free else ("factor",)
        none = {name: jnp.zeros(self.scale.shape, jnp.float32) for name in moved}
        return {"latent": self.codes, **none}

    def real(self, found: Mapping[str, Any], fixed: tuple[Any, ...]) -> Any:
        """The weight that is stored, with gradients by both parameters."""
        scale, zero = fixed
        wide = partial(spread, block=self.block, shape=self.codes.shape)
        inside = jnp.clip(found["latent"], *self.limits)
        between = self._number(inside)
        code = between + jax.lax.stop_gradient(self._number(jnp.round(inside)) - between)
        zero = zero + found["shift"] if self.free else zero
        return (code - wide(zero)) * wide(scale * (1 + found["factor"] * (self.levels is None)))

    def _number(self, code: Any) -> Any:
        levels = self.levels
        return code if levels is None else jnp.interp(code, np.arange(len(levels)), levels)

    def after(self, found: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Codes and scales of learned parameters, both f32."""
        codes = jnp.round(jnp.clip(found["latent"], *self.limits))
        scale = self.scale * (1 + np.asarray(found["factor"]))
        zero = {"zero": self.zero + np.asarray(found["shift"])} if self.free else {}
        return {"codes": np.asarray(codes), "scale": scale, **zero}


@dataclass(frozen=True)
class Floats:
    """A weight that stays float (a bias): real = now + size * factor, size its root mean square."""

    now: np.ndarray

    @property
    def fixed(self) -> tuple[Any, ...]:
        size = np.sqrt(np.mean(np.square(self.now, dtype=np.float64)))
        return jnp.asarray(self.now, jnp.float32), jnp.float32(size)

    def begin(self, weight: Any) -> dict[str, Any]:
        return self.value()

    def value(self) -> dict[str, Any]:
        return {"factor": jnp.zeros(self.now.shape, jnp.float32)}

    def real(self, found: Mapping[str, Any], fixed: tuple[Any, ...]) -> Any:
        return fixed[0] + fixed[1] * found["factor"]

    def after(self, found: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {"value": np.asarray(self.real(found, self.fixed))}


Stored = Mapping[str, Codes | Floats]


class Learned:
    """The error of a region's float outputs with weights in codes, and steps that make it smaller.

    error = mean over outputs of  |y' - y|^2 / |y|^2"""

    def __init__(self, region: Region, weights: Mapping[str, np.ndarray], stored: Stored) -> None:
        """`weights` are all of the program; `stored` those to learn, where regions read them."""
        check_threads()
        self.region, self.stored = region, {n: stored[n] for n in region.weights}
        self.weights = {n: jnp.asarray(weights[n]) for n in region.reads - self.stored.keys()}
        self.own = {n: jnp.asarray(weights[n]) for n in self.stored}
        self.real = jax.jit(self._real)
        self._pull = jax.jit(self._pulled)
        self._forward: Callable[..., Any] | None = None
        self._slope: Callable[..., Any] | None = None
        self.restart(stored)

    def restart(self, stored: Stored) -> None:
        """Other codes and scales to begin with, of the same shapes, blocks and limits."""
        self.stored = {n: stored[n] for n in self.region.weights}
        self.fixed = {n: c.fixed for n, c in self.stored.items()}

    def values(self) -> dict[str, Any]:
        """The learned weights, as what it begins with has them."""
        return dict(self.real({n: c.value() for n, c in self.stored.items()}, self.fixed))

    def _real(self, parameters: Parameters, fixed: Any) -> dict[str, Any]:
        return {
            n: c.real(parameters[n], fixed[n]).astype(self.own[n].dtype)
            for n, c in self.stored.items()
        }

    def _pulled(self, parameters: Parameters, fixed: Any, slope: Any) -> Any:
        """Gradients by parameters, of those by weights."""
        _, pull = jax.vjp(lambda p: self._real(p, fixed), parameters)
        return pull(slope)[0]

    def outputs(self, real: Mapping[str, Any], inputs: Sequence[Any]) -> list[Any]:
        """The region's outputs with these values of its learned weights."""
        if self._forward is None:
            self._forward = compiled(self._run, real, self.weights, list(inputs))
        return list(self._forward(real, self.weights, list(inputs)))

    def samples(self, data: Sequence[Sequence[Any]]) -> Callable[[int], Sample]:
        """Samples by their number: the region's inputs, and its outputs with its own weights."""

        def find(number: int) -> Sample:
            wanted = self.outputs(self.own, data[number])
            return data[number], wanted, [np.float32(1)] * len(wanted)

        size = sum(math.prod(shape_of(v)) * 4 for v in self.region.outputs)
        return cache(find) if size * len(data) <= ROOM else find

    def _run(self, real: Any, weights: Any, inputs: Any) -> list[Any]:
        return self.region({**weights, **real}, inputs)

    def _error(self, real: Any, weights: Any, inputs: Any, wanted: Any, gains: Any) -> Any:
        return mean_error(self._run(real, weights, inputs), wanted, gains)

    def descend(
        self,
        sample: Callable[[int], Sample],
        batches: Sequence[Sequence[int]],
        *,
        rate: float,
        scale_rate: float,
    ) -> dict[str, dict[str, np.ndarray]]:
        """The values to store after a step for each batch of samples, both rates falling to 0.

        Args:
            sample: by number: inputs of the region, outputs that are wanted, and what weighs the
                squared error of each (to be broadcast).
            rate: of latent numbers: steps of a code.
            scale_rate: of factors: shares of a scale, or of what stays float."""
        import optax

        parameters = {n: c.begin(self.own[n]) for n, c in self.stored.items()}
        falling = [optax.linear_schedule(r, 0.0, len(batches)) for r in (rate, scale_rate)]
        kinds = {"latent": optax.sign_sgd(falling[0]), "factor": optax.adam(falling[1], eps=1e-12)}
        kinds["shift"] = kinds["factor"]
        labels = {n: {k: k for k in own} for n, own in parameters.items()}
        moves = optax.multi_transform(kinds, labels)
        state, update = moves.init(parameters), jax.jit(moves.update)
        for batch in batches:
            real = self.real(parameters, self.fixed)
            slopes = [self._slope_of(real, *sample(i)) for i in batch]
            slope = jax.tree.map(lambda *g: sum(g) / len(g), *slopes)
            changes, state = update(self._pull(parameters, self.fixed, slope), state)
            parameters = optax.apply_updates(parameters, changes)
        return {n: c.after(parameters[n]) for n, c in self.stored.items()}

    def _slope_of(self, real: Any, inputs: Any, wanted: Any, gains: Any) -> Any:
        given = real, self.weights, list(inputs), list(wanted), list(gains)
        if self._slope is None:
            with reverse_mode():
                self._slope = compiled(jax.grad(self._error), *given)
        return self._slope(*given)
