"""Drawn networks: blocks of convolution, attention, recurrence and experts, in drawn order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jq

TIME, WIDTH = 4, 8  # of what goes from block to block: [batch, TIME, WIDTH]
PIPELINES = (
    *("int8-weight-only", "int4-weight-only", "fp8-weight-only", "mxfp8-weight-only"),
    *("int8-dynamic", "int4-dynamic", "int8-static", "int8x16-static"),
)
ACTIVATIONS = (jax.nn.relu, jax.nn.gelu, jax.nn.silu, jnp.tanh)
Params = dict[str, np.ndarray]
Linear = Callable[[Any, Any], Any]
Block = Callable[[Params, str, Any, Linear], Any]


@dataclass(frozen=True)
class Network:
    """Attributes:
    blocks: what is called in turn, each with its sum and its norm; `params` by block and name.
    samples: inputs of `[2, TIME, WIDTH]`.
    """

    blocks: tuple[Block, ...]
    params: Params
    samples: list[np.ndarray]
    pipeline: str

    def __call__(self, params: Params, x: Any, linear: Linear = jnp.matmul) -> Any:
        for i, block in enumerate(self.blocks):
            x = x + block(params, f"b{i}", norm(x), linear)
        return x

    def model(self, fn: Any = None, params: Params | None = None, rows: int = 2) -> jq.Model:
        samples = [(x[:rows],) for x in self.samples]
        return jq.Model(fn or self, params or self.params, samples[0], calibration=samples)

    def __str__(self) -> str:
        names = (getattr(b, "func", b).__name__ for b in self.blocks)
        return f"{self.pipeline}: {', '.join(names)}"


def network(seed: int) -> Network:
    """Two to four blocks, whose sizes and functions are drawn as well."""
    rng, params = np.random.default_rng((19, seed)), dict[str, np.ndarray]()
    made = []
    for i in range(int(rng.integers(2, 5))):
        block = (convolution, attention, recurrence, experts)[int(rng.integers(4))]
        f = ACTIVATIONS[int(rng.integers(len(ACTIVATIONS)))]
        made.append(partial(block, f=f, kind=int(rng.integers(2))))
        for name, shape in SHAPES[block.__name__].items():
            scale = float(np.prod(shape[:-1])) ** -0.5
            params[f"b{i}/{name}"] = (rng.standard_normal(shape) * scale).astype(np.float32)
    samples = [rng.standard_normal((2, TIME, WIDTH)).astype(np.float32) for _ in range(3)]
    return Network(tuple(made), params, samples, str(rng.choice(PIPELINES)))


SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "convolution": {"kernel": (3, 3, 1, 4), "out": (4 * WIDTH, WIDTH)},
    "attention": dict.fromkeys(("q", "k", "v", "out"), (WIDTH, WIDTH)),
    "recurrence": {"in": (WIDTH, WIDTH), "state": (WIDTH, WIDTH), "gate": (WIDTH, WIDTH)},
    "experts": {"router": (WIDTH, 3), "up": (3, WIDTH, 2 * WIDTH), "down": (3, 2 * WIDTH, WIDTH)},
}


# Of a block: two weights that share hidden channels, which are in so many groups.
HIDDEN = {
    "convolution": (("kernel", "out", 1),),
    "attention": (("q", "k", 2),),
    "experts": (("up", "down", 1),),
}


def norm(x: Any) -> Any:
    return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)


def convolution(p: Params, at: str, x: Any, linear: Linear, *, f: Any, kind: int) -> Any:
    """Over time and width as an image of one channel; strides of 1 and 2 in turn."""
    image = x[..., None]
    steps = (1 + kind, 1)
    layout = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(
        image, jnp.asarray(p[f"{at}/kernel"]), steps, "SAME", dimension_numbers=layout
    )
    y = jnp.repeat(f(y), 1 + kind, axis=1)
    return linear(y.reshape(*x.shape[:2], -1), p[f"{at}/out"])


def attention(p: Params, at: str, x: Any, linear: Linear, *, f: Any, kind: int) -> Any:
    """Attention of two heads, with a mask or without."""
    q, k, v = (linear(x, p[f"{at}/{n}"]).reshape(*x.shape[:2], 2, -1).swapaxes(1, 2) for n in "qkv")
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    if kind:
        scores = jnp.where(np.tril(np.ones((TIME, TIME), bool)), scores, -1e9)
    y = (jax.nn.softmax(scores, -1) @ v).swapaxes(1, 2).reshape(x.shape)
    return linear(f(y), p[f"{at}/out"])


def recurrence(p: Params, at: str, x: Any, linear: Linear, *, f: Any, kind: int) -> Any:
    """A loop over time, or its turns one after the other."""

    def turn(state: Any, given: Any) -> tuple[Any, Any]:
        keep = jax.nn.sigmoid(linear(given, p[f"{at}/gate"]))
        new = jnp.tanh(linear(given, p[f"{at}/in"]) + linear(state, p[f"{at}/state"]))
        state = keep * state + (1 - keep) * new
        return state, state

    steps = x.swapaxes(0, 1)
    _, y = jax.lax.scan(turn, jnp.zeros_like(steps[0]), steps, unroll=TIME if kind else 1)
    return f(y.swapaxes(0, 1))


def experts(p: Params, at: str, x: Any, linear: Linear, *, f: Any, kind: int) -> Any:
    """All of them weighed, or the best alone."""
    share = jax.nn.softmax(linear(x, p[f"{at}/router"]), -1)
    if kind:
        share = share * (share == share.max(-1, keepdims=True))
    each = [linear(f(linear(x, p[f"{at}/up"][e])), p[f"{at}/down"][e]) for e in range(3)]
    return sum(share[..., e : e + 1] * y for e, y in enumerate(each))
