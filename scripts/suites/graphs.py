"""Drawn models whose arithmetic is exact, so that every evaluator must give the same bits.

Inputs are small integers and weights integers over a power of two, among them 127 in every channel:
int8 holds them without loss, sums are exact in float32 in any order, fused or not. What quantizes
activations rounds, once, where it multiplies by its scale; behind the last product of such a
pipeline nothing is drawn that would round again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jq

Array = Any
MOST = 64.0  # of a value, in front of a product


@dataclass(frozen=True)
class Kind:
    """A pipeline, and which ops may follow its last product; `lossless` if results are those of
    the float model."""

    pipeline: str
    settings: tuple[str, ...] = ()
    rounds: bool = False
    lossless: bool = False


KINDS = (
    Kind("float", lossless=True),
    Kind("int8-weight-only", ("min_elements=1",), lossless=True),
    Kind("int8-dynamic", rounds=True),
    Kind("int8-dynamic", ("activations.scheme=symmetric",), rounds=True),
    Kind("int8-static", rounds=True),
    Kind("int8-dynamic", ("placement=late",), rounds=True),
)


@dataclass
class Draw:
    """Attributes:
    ops: what was drawn, for the report; each is a function of the parameters and one array.
    """

    rng: np.random.Generator
    params: dict[str, np.ndarray] = field(default_factory=dict)
    ops: list[tuple[str, Callable[[Any, Array], Array]]] = field(default_factory=list)

    def add(self, name: str, op: Callable[[Any, Array], Array]) -> None:
        self.ops.append((name, op))


def weight(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """int8 codes of a scale that is a power of two, over all axes but the last."""
    codes = rng.integers(-127, 128, shape).astype(np.float32)
    codes[(0,) * (len(shape) - 1)] = 127
    return codes * np.float32(2.0 ** -rng.integers(4, 9))


def _moves(draw: Draw, shape: tuple[int, ...]) -> None:
    """Ops that only move, choose or compare values."""
    rng, rank, axis = draw.rng, len(shape), int(draw.rng.integers(len(shape)))
    order = tuple(int(a) for a in rng.permutation(rank))
    index = rng.integers(0, shape[axis], rng.integers(1, 5))
    cut = int(rng.integers(0, shape[axis]))
    options: dict[str, Callable[[Any, Array], Array]] = {
        "transpose": lambda p, x: jnp.transpose(x, order),
        "reverse": lambda p, x: jnp.flip(x, axis),
        "slice": lambda p, x: jax.lax.slice_in_dim(x, cut, None, axis=axis),
        "pad": lambda p, x: jnp.pad(x, [(1, 0) if a == axis else (0, 2) for a in range(rank)]),
        "repeat": lambda p, x: jnp.concatenate([x, -x], axis),
        "gather": lambda p, x: jnp.take(x, index, axis=axis),
        "relu": lambda p, x: jnp.maximum(x, 0),
        "negate": lambda p, x: -x,
        "abs": lambda p, x: jnp.abs(x),
        "select": lambda p, x: jnp.where(x > 1, x, -x),
        "flat": lambda p, x: x.reshape(x.shape[0], -1) if x.size else x,
        "largest": lambda p, x: x.max(axis, keepdims=True),
        "sort": lambda p, x: jnp.sort(x, axis),
        "roll": lambda p, x: jnp.roll(x, 1, axis),
    }
    name = str(rng.choice(list(options)))
    draw.add(name, options[name])


def _exact(draw: Draw, shape: tuple[int, ...]) -> None:
    """Ops that compute without rounding, on numbers below 64 that are multiples of 1/16."""
    axis = int(draw.rng.integers(len(shape)))
    options: dict[str, Callable[[Any, Array], Array]] = {
        "add": lambda p, x: x + jnp.flip(x, axis),
        "subtract": lambda p, x: x - jnp.roll(x, 1, axis),
        "floor": lambda p, x: jnp.floor(x * 0.5),
        "round": lambda p, x: jnp.round(x * 0.5),
        "clip": lambda p, x: jnp.clip(x, -5, 9),
        "sum": lambda p, x: x + x.sum(axis, keepdims=True),
        "square": lambda p, x: jnp.round(jnp.clip(x, -8, 8)) ** 2,
        "min": lambda p, x: jnp.minimum(x, jnp.flip(x, axis)),
    }
    name = str(draw.rng.choice(list(options)))
    draw.add(name, lambda p, x: jnp.clip(options[name](p, x), -MOST, MOST))


def _product(draw: Draw, shape: tuple[int, ...]) -> None:
    """A product with a weight: along the last axis, or a convolution of the last two."""
    rng, name = draw.rng, f"w{len(draw.params)}"
    if len(shape) == 3 and rng.random() < 0.4:
        width = int(rng.integers(1, min(4, shape[1] + 1)))
        draw.params[name] = weight(rng, (width, shape[2], int(rng.integers(1, 9))))
        dims = ("NWC", "WIO", "NWC")
        stride = (int(rng.integers(1, 3)),)

        def conv(p: Any, x: Array) -> Array:
            return jax.lax.conv_general_dilated(x, p[name], stride, "SAME", dimension_numbers=dims)

        draw.add("convolution", conv)
    else:
        draw.params[name] = weight(rng, (shape[-1], int(rng.integers(1, 17))))
        draw.add("dot", lambda p, x: x @ p[name])


def drawn(seed: int, kind: Kind) -> tuple[jq.Model, list[str], list[np.ndarray]]:
    """A model, the names of its ops, and inputs that are not its example."""
    rng = np.random.default_rng(seed)
    draw = Draw(rng)
    shape = tuple(int(n) for n in rng.integers(1, 9, rng.integers(2, 4)))
    xs = [rng.integers(-8, 9, shape).astype(np.float32) for _ in range(3)]

    def fn(params: Any, x: Array) -> Array:
        for _, op in draw.ops:
            x = op(params, x)
        return x

    products = 0
    for _ in range(int(rng.integers(2, 12))):
        # JAX keeps what it traced by the function's identity, and the ops have grown.
        now = jax.eval_shape(lambda p, x: fn(p, x), draw.params, xs[0]).shape
        if np.prod(now) > 4096:
            break
        done = products and kind.rounds
        chance = rng.random()
        if chance < 0.35 and not done:
            draw.add("steps", lambda p, x: jnp.clip(jnp.round(x * 16) / 16, -MOST, MOST))
            _product(draw, now)
            products += 1
        elif chance < 0.65 and not done:
            draw.add("steps", lambda p, x: jnp.clip(jnp.round(x * 16) / 16, -MOST, MOST))
            _exact(draw, now)
        else:
            _moves(draw, now)
    model = jq.Model(fn, dict(draw.params), (xs[0],), calibration=[(x,) for x in xs])
    return model, [name for name, _ in draw.ops], xs[1:]
