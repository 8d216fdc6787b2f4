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
    "chosen": lambda y: jnp.where(y > 0, y, 0),  # of NaN, 0
    "numbers": lambda y: jax.nn.relu(jnp.nan_to_num(y)),
    "half": lambda y: jnp.clip(y, 0, 65504),
    "gelu": lambda y: jax.nn.gelu(y, approximate=False),
    "tanh": jax.nn.gelu,
    "silu": jax.nn.silu,
    "leaky": jax.nn.leaky_relu,
}
EXACT = (
    "relu",
    "relu6",
    "clip",
    "ceiling",
    "negative",
    "leaky",
    "chosen",
    "numbers",
    "half",
    "sum",
    "two",
    "loop",
)
# Depthwise convolutions: what comes after them, their strides, and their windows.
DEPTHWISE = {
    "depth_relu6": (jax.nn.relu6, 1, 3),
    "depth_clip": (lambda y: jnp.clip(y, -1.5, 2.5), 2, 3),
    "depth_plain": (lambda y: y, 1, 5),
    "depth_ceiling": (lambda y: jnp.minimum(y, 1.0), 2, 5),
}
IMAGES = ("conv", "separable", *DEPTHWISE)  # outputs that have all of the image's rows


def network(p, x, image):
    """Outputs by name."""
    found = {name: after(x @ p[name] + p["bias"]) for name, after in AFTER.items()}
    found["sum"] = jax.nn.relu(x @ p["sum"] + x)
    found["two"] = jax.nn.relu(jax.nn.relu(x @ p["two"]) @ p["three"])
    found["norm"] = _norm(x @ p["norm"] + x) @ p["normed"]

    def step(c, _):
        return jnp.clip(c @ p["loop"], -4.0, 4.0), None

    found["loop"] = jax.lax.scan(step, x, None, length=2)[0]
    found["conv"] = jax.nn.relu6(_convolved(image, p["conv"]))
    for name, (after, stride, _) in DEPTHWISE.items():
        found[name] = after(_convolved(image, p[name], stride, 8) + p["bias"][:8])
    inner = jax.nn.relu(_convolved(image, p["inner"], groups=8))
    found["separable"] = jax.nn.relu(_convolved(inner, p["point"]) + image)
    return found


def _convolved(x, w, stride=1, groups=1):
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", dimension_numbers=numbers, feature_group_count=groups
    )


def _norm(x):
    centered = x - x.mean(-1, keepdims=True)
    return centered / jnp.sqrt(jnp.square(centered).mean(-1, keepdims=True) + 1e-5)


def weights(rng: np.random.Generator) -> dict[str, np.ndarray]:
    names = (*AFTER, "sum", "two", "three", "norm", "normed", "loop")
    found = {n: rng.standard_normal((WIDTH, WIDTH)) / 6 for n in names}
    found |= {"bias": rng.standard_normal(WIDTH), "conv": rng.standard_normal((3, 3, 8, 8)) / 8}
    found |= {n: rng.standard_normal((k, k, 1, 8)) / k for n, (_, _, k) in DEPTHWISE.items()}
    found["inner"] = rng.standard_normal((3, 3, 1, 8)) / 3
    found["point"] = rng.standard_normal((1, 1, 8, 8)) / 3
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
    image[0, 5, 0, 6] = rng.choice((*NUMBERS, *LARGEST))
    return x, image


def ordinary(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Inputs to calibrate with."""
    x, image = rng.standard_normal((ROWS, WIDTH)), rng.standard_normal(IMAGE)
    return x.astype(np.float32), image.astype(np.float32)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "pipeline", ["int8-dynamic", "int4-dynamic", "int4-weight-only", "int8-static"]
)
@random_example()
def test_what_is_not_finite_stays(pipeline: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    both = Both(network, weights(rng), inputs(rng), pipeline, seen=ordinary(rng))
    assert "depthwise" in both.families or not pipeline.startswith("int8")
    names = sorted([*AFTER, "sum", "two", "norm", "loop", *IMAGES])
    for name, expected, found in zip(names, both.expected, both.found, strict=True):
        if name != "norm":  # its sums may overflow in one order and not in another
            assert np.isfinite(found[np.isfinite(expected)]).all(), name
        if name not in IMAGES:
            expected, found = expected[:-LAST], found[:-LAST]
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected), name)
        infinite = np.isinf(expected)
        np.testing.assert_array_equal(found[infinite], expected[infinite], name)
        if name in (*EXACT, *IMAGES) and pipeline in ("int8-dynamic", "int8-static"):
            np.testing.assert_array_equal(found, expected, name)
