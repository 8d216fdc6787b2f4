"""Residual and branching networks of Flax NNX and Linen, under rules that mix formats in them.

Right or refused as in `suites.mixed_formats`. Layers are called `first`, `second`, ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx

import jq
from suites.differential.networks import SETTINGS
from suites.mixed_formats import outcome
from suites.outcome import Outcome

Array = Any
Layer = Callable[[str, str, int, Array], Array]  # kind, name, width, input -> output
NAMES = ("first", "second", "third", "fourth", "fifth")
relu = jax.nn.relu


def residual(layer: Layer, x: Array) -> Array:
    y = layer("conv", "second", 8, relu(layer("conv", "first", 8, x)))
    return relu(x + y)


def dense(layer: Layer, x: Array) -> Array:
    for name in NAMES[:3]:
        y = relu(layer("norm", f"{name}_norm", 0, layer("conv", name, 4, x)))
        x = jnp.concatenate([x, y], -1)
    return layer("dense", "fourth", 6, x.mean((1, 2)))


def inception(layer: Layer, x: Array) -> Array:
    pooled = linen.max_pool(x, (3, 3), (1, 1), "SAME")
    branches = [
        layer("point", "first", 4, x),
        layer("conv", "second", 4, layer("point", "third", 4, x)),
        layer("point", "fourth", 4, pooled),
    ]
    return layer("point", "fifth", 8, relu(jnp.concatenate(branches, -1))) + x


def ladder(layer: Layer, x: Array) -> Array:
    """Down and up again, with both joined (U-Net)."""
    a = relu(layer("conv", "first", 8, x))
    b = relu(layer("conv", "second", 8, linen.avg_pool(a, (2, 2), (2, 2))))
    up = jnp.repeat(jnp.repeat(layer("point", "third", 8, b), 2, 1), 2, 2)
    return layer("conv", "fourth", 3, jnp.concatenate([a, up], -1)) + layer("point", "fifth", 3, a)


def gated(layer: Layer, x: Array) -> Array:
    """Channels are weighed by their means (squeeze and excitation)."""
    y = layer("conv", "first", 8, x)
    share = jax.nn.sigmoid(
        layer("dense", "third", 8, relu(layer("dense", "second", 4, y.mean((1, 2)))))
    )
    return relu(x + y * share[:, None, None]) + layer("point", "fourth", 8, y)


def attention(layer: Layer, x: Array) -> Array:
    rows = x.reshape(x.shape[0], -1, x.shape[-1])
    q, k, v = (layer("dense", name, 8, rows) for name in NAMES[:3])
    rows = rows + jax.nn.softmax(q @ k.swapaxes(1, 2) / np.sqrt(8)) @ v
    return rows + layer("dense", "fifth", 8, jax.nn.gelu(layer("dense", "fourth", 16, rows)))


# How many of the names each has.
NETWORKS = {residual: 2, dense: 4, inception: 5, ladder: 5, gated: 4, attention: 5}
KINDS: dict[str, dict[str, Any]] = {
    "linen": {
        "conv": lambda name, n: linen.Conv(n, (3, 3), name=name),
        "point": lambda name, n: linen.Conv(n, (1, 1), name=name),
        "dense": lambda name, n: linen.Dense(n, name=name),
        "norm": lambda name, n: linen.BatchNorm(use_running_average=True, name=name),
    },
    "nnx": {
        "conv": lambda x, n, r: nnx.Conv(x.shape[-1], n, (3, 3), rngs=r),
        "point": lambda x, n, r: nnx.Conv(x.shape[-1], n, (1, 1), rngs=r),
        "dense": lambda x, n, r: nnx.Linear(x.shape[-1], n, rngs=r),
        "norm": lambda x, n, r: nnx.BatchNorm(x.shape[-1], use_running_average=True, rngs=r),
    },
}


class Linen(linen.Module):
    network: Callable[[Layer, Array], Array]

    @linen.compact
    def __call__(self, x: Array) -> Array:
        return self.network(lambda kind, name, n, v: KINDS["linen"][kind](name, n)(v), x)


class Nnx(nnx.Module):
    def __init__(self, network: Callable[[Layer, Array], Array], x: Array) -> None:
        rngs = nnx.Rngs(0)

        def made(kind: str, name: str, n: int, v: Array) -> Array:
            setattr(self, name, KINDS["nnx"][kind](v, n, rngs))
            return getattr(self, name)(v)

        self.network = network
        network(made, x)

    def __call__(self, x: Array) -> Array:
        return self.network(lambda kind, name, n, v: getattr(self, name)(v), x)


DYNAMIC = "activations.mode=dynamic, activations.granularity=per-token"
STATIC = "activations.mode=static, activations.granularity=per-tensor"
WIDE = "activations.format=int16, activations.scheme=symmetric"
# A pipeline, and what it is given by layer.
RULES: tuple[tuple[str, dict[str, str]], ...] = (
    ("int8-static", {"first": "activations.format=int16"}),
    ("int8-static", {"second": DYNAMIC, "third": "float"}),
    (
        "int8-static",
        {"second": WIDE, "fourth": "weights.format=int4", "fifth": "format=mxint8"},
    ),
    (
        "int8x16-static",
        {"first": f"activations.format=uint8, activations.scheme=asymmetric, {STATIC}",
         "third": "bfloat16"},
    ),
    (
        "int8-dynamic",
        {"first": f"activations.format=int8, {STATIC}", "second": f"{WIDE}, {STATIC}"},
    ),
    (
        "int8-static-integer-only",
        {"second": WIDE, "fourth": "weights.granularity=per-tensor"},
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    framework: str
    network: int
    rules: int
    iree: bool = False


CASES = [(f, n, r) for f in KINDS for n in range(len(NETWORKS)) for r in range(len(RULES))]


def identify(case: Case) -> tuple[str, str]:
    return f"{case.framework} {_network(case).__name__}", f"rules {case.rules}"


def _network(case: Case) -> Callable[[Layer, Array], Array]:
    return list(NETWORKS)[case.network]


def judge(cases: Sequence[Case]) -> list[Outcome | None]:
    """The outcome of one case."""
    (case,) = cases
    (pipeline, overrides), layers = (
        RULES[case.rules],
        NAMES[: list(NETWORKS.values())[case.network]],
    )
    rules = [f"*{name}*: {overrides[name]}" for name in layers if name in overrides]
    given = {"pipeline": pipeline, "settings": SETTINGS, "rules": rules}
    return [outcome(identify(case), model(case), given, layers, case.iree)]


def model(case: Case) -> jq.Model:
    rng, network = np.random.default_rng(0), _network(case)
    samples = [(rng.standard_normal((1, 6, 6, 8)).astype(np.float32),) for _ in range(3)]
    if case.framework == "nnx":
        return jq.from_nnx(Nnx(network, samples[0][0]), samples[0], calibration=samples)
    module = Linen(network)
    variables = module.init(jax.random.key(0), *samples[0])
    return jq.from_linen(module, variables, samples[0], calibration=samples)
