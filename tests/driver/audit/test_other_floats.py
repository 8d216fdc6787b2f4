"""Models of floats of 64 and 16 bits: their range is kept where weights alone are quantized."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest

import jq

RNG = np.random.default_rng(0)
LAYOUT = ("NHWC", "HWIO", "NHWC")
OPS = {
    "dot": (lambda p, x: x @ p["w"], (32, 64), (4, 32)),
    "conv": (
        lambda p, x: jax.lax.conv_general_dilated(
            x, p["w"], (1, 1), "VALID", dimension_numbers=LAYOUT
        ),
        (3, 3, 8, 16),
        (1, 4, 4, 8),
    ),
}


@pytest.mark.parametrize("kind", OPS)
def test_sums_beyond_float32(kind: str) -> None:
    """Each weight is off by half a step at most; the step is the largest of a channel over 127."""
    apply, shape, of_input = OPS[kind]
    with jax.enable_x64(True):
        params, x = {"w": RNG.standard_normal(shape)}, 1e60 * RNG.standard_normal(of_input)
        compiled = jq.compile(
            jq.Model(apply, params, (x,)),
            "int8-weight-only",
            settings=["recovery=false"],
            measure=False,
        )
        found, exact = compiled(x), np.asarray(apply(params, x))
        largest = np.abs(params["w"]).max(tuple(range(len(shape) - 1)), keepdims=True)
        half = {"w": np.broadcast_to(largest / 254, shape) * (1 + 1e-6)}
        bound = np.asarray(apply(half, np.abs(x)))
    assert found.dtype == np.float64 and (np.abs(found - exact) <= bound).all()
    audit = compiled.audit()
    assert audit.verified, audit.warnings


def test_sums_of_codes_beyond_float16() -> None:
    """The model's own outputs are below 100, the sums of its codes above 65,504."""
    apply = partial(
        jax.lax.conv_general_dilated,
        window_strides=(1, 1),
        padding="VALID",
        dimension_numbers=LAYOUT,
        feature_group_count=8,
    )
    w = (1e-3 * RNG.standard_normal((3, 3, 1, 16))).astype(np.float16)
    x = (1e4 * RNG.standard_normal((1, 5, 5, 8))).astype(np.float16)
    model = jq.Model(lambda p, x: apply(x, p["w"]), {"w": w}, (x,))
    settings = ["min_elements=1", "recovery=false"]
    found = jq.compile(model, "int8-weight-only", settings=settings, measure=False)(x)
    wide = x.astype(np.float32)
    exact = np.asarray(apply(wide, w.astype(np.float32)))
    half = np.broadcast_to(np.abs(w).max((0, 1, 2)) / np.float32(254), w.shape)
    rounding = np.finfo(np.float16).eps * np.abs(exact)  # of the result
    assert found.dtype == np.float16
    assert (np.abs(found - exact) <= 1.001 * np.asarray(apply(abs(wide), half)) + rounding).all()
