"""Ops that a device has stay where a rewrite makes one that it has not."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import jq
from tests.support.programs import evaluated
from tests.support.targets import LIMITS

RNG = np.random.default_rng(0)
DIMS = ("NHWC", "HWIO", "NHWC")


def real(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def transposed(p, x):
    y = jax.lax.conv_transpose(x, p["w"], (2, 2), "SAME", dimension_numbers=DIMS)
    return jax.nn.relu(y + p["b"])


def resized(p, x):
    y = jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME", dimension_numbers=DIMS)
    return jax.image.resize(y + p["b"], (1, 16, 16, 8), "linear")


@pytest.mark.parametrize("fn", [transposed, resized])
def test_upsampling_by_two_is_integer(fn) -> None:
    x, params = real(1, 8, 8, 4), {"w": real(3, 3, 4, 8), "b": real(8)}
    model = jq.Model(fn, params, (x,), calibration=[(x,), (real(1, 8, 8, 4),)], name="up")
    given = {"pipeline": "int8-static", "target": LIMITS}
    ops = jq.plan(model, **given).ops
    assert {op.decision for op in ops} == {"integer"}
    levels = jq.rewrite(model, **given)
    text = levels["float"].text()
    assert ("lhs_dilate = [2, 2]" in text) == (fn is transposed)
    y, wanted = np.asarray(evaluated(levels["integer"], x)[0]), np.asarray(fn(params, x))
    # Three or fewer roundings to 8 bits on the way: input, weights and result.
    assert np.abs(y - wanted).max() < 0.1 * np.abs(wanted).max()


def test_elsewhere_it_becomes_one_of_a_smaller_window() -> None:
    x, params = real(1, 8, 8, 4), {"w": real(3, 3, 4, 8), "b": real(8)}
    model = jq.Model(transposed, params, (x,), name="up")
    assert "lhs_dilate = [2, 2]" not in jq.rewrite(model, pipeline="float")["float"].text()
