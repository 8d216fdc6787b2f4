"""NaN, infinity and the ends of float32 through kernels: as the integer level has them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.passes.test_kernel_passes import Both
from tests.support.drawn import random_example

pytestmark = pytest.mark.usefixtures("quick_xla")

ROWS, WIDTH, IMAGE = 24, 32, (1, 6, 6, 8)
NUMBERS = (np.nan, -np.nan, np.inf, -np.inf, 1e30, -1e30, 1e-40, -1e-30, 0.0, -0.0)
LARGEST = (3.4e38, -3.4e38)  # in the last rows: whether a sum overflows depends on its order
LAST = 4
# Functions in an epilogue, by the name of their product's weight.
AFTER = {
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "clip": lambda y: jnp.clip(y, -1.5, 2.5),
    "ceiling": lambda y: jnp.minimum(y, 1.0),
    "negative": lambda y: jnp.maximum(y, -3.0),
    "gelu": lambda y: jax.nn.gelu(y, approximate=False),
    "tanh": jax.nn.gelu,
    "silu": jax.nn.silu,
    "leaky": jax.nn.leaky_relu,
}
EXACT = ("relu", "relu6", "clip", "ceiling", "negative", "leaky", "sum", "two", "loop")


def network(p, x, image):
    """Outputs by name."""
    found = {name: after(x @ p[name] + p["bias"]) for name, after in AFTER.items()}
    found["sum"] = jax.nn.relu(x @ p["sum"] + x)
    found["two"] = jax.nn.relu(jax.nn.relu(x @ p["two"]) @ p["three"])
    found["norm"] = _norm(x @ p["norm"] + x) @ p["normed"]

    def step(c, _):
        return jnp.clip(c @ p["loop"], -4.0, 4.0), None

    found["loop"] = jax.lax.scan(step, x, None, length=2)[0]
    numbers = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(image, p["conv"], (1, 1), "SAME", dimension_numbers=numbers)
    found["conv"] = jax.nn.relu6(y)
    return found


def _norm(x):
    centered = x - x.mean(-1, keepdims=True)
    return centered / jnp.sqrt(jnp.square(centered).mean(-1, keepdims=True) + 1e-5)


def weights(rng: np.random.Generator) -> dict[str, np.ndarray]:
    names = (*AFTER, "sum", "two", "three", "norm", "normed", "loop")
    found = {n: rng.standard_normal((WIDTH, WIDTH)) / 6 for n in names}
    found |= {"bias": rng.standard_normal(WIDTH), "conv": rng.standard_normal((3, 3, 8, 8)) / 8}
    return {n: w.astype(np.float32) for n, w in found.items()}


def inputs(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Most rows have numbers that are not ordinary; the image has one."""
    x = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    for row in x[LAST:]:
        row[rng.integers(0, WIDTH, 2)] = rng.choice(NUMBERS, 2)
    for row in x[-LAST:]:
        row[rng.integers(0, WIDTH, 2)] = rng.choice(LARGEST, 2)
    image = rng.standard_normal(IMAGE).astype(np.float32)
    image[0, 2, 3, 1] = rng.choice(NUMBERS)
    return x, image


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("pipeline", ["int8-dynamic", "int4-dynamic", "int4-weight-only"])
@random_example()
def test_what_is_not_finite_stays(pipeline: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    both = Both(network, weights(rng), inputs(rng), pipeline)
    names = sorted([*AFTER, "sum", "two", "norm", "loop", "conv"])
    for name, expected, found in zip(names, both.expected, both.found, strict=True):
        if name != "norm":  # its sums may overflow in one order and not in another
            assert np.isfinite(found[np.isfinite(expected)]).all(), name
        if name != "conv":
            expected, found = expected[:-LAST], found[:-LAST]
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected), name)
        infinite = np.isinf(expected)
        np.testing.assert_array_equal(found[infinite], expected[infinite], name)
        if name in EXACT and pipeline == "int8-dynamic":
            np.testing.assert_array_equal(found, expected, name)
