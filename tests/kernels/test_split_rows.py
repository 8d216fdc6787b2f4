"""Floats as int8 digits: the bits of the definition, and how near they are to the number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from jq.base.errors import InternalError
from jq.kernels import SplitRows
from tests.kernels.harness import Runner
from tests.kernels.references import reference
from tests.kernels.strategies import HERE, sizes
from tests.support.drawn import random_example

kernels = st.builds(
    SplitRows,
    isa=st.sampled_from(HERE),
    m=st.integers(1, 5),
    k=sizes,
    block=st.sampled_from([16, 32, 48]),
    digits=st.sampled_from([2, 3]),
)


def values(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Values of many magnitudes, some rows zero, some numbers the largest of their block."""
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-40, 40, (shape[0], 1))
    x[rng.random(shape) < 0.1] = 0
    return np.where(rng.random((shape[0], 1)) < 0.2, 0, x).astype(np.float32)


def number(kernel: SplitRows, digits: np.ndarray, scale: np.ndarray) -> np.ndarray:
    weights = 256.0 ** np.arange(kernel.digits)[::-1, None]
    wide = np.repeat(scale.astype(np.float64), kernel.block, axis=1)[:, : kernel.k]
    return (digits.astype(np.float64) * weights).sum(1) * wide


@random_example(st.lists(kernels, min_size=6, max_size=6))
def test_every_shape(drawn: list[SplitRows], seed: int) -> None:
    runner = Runner(drawn)
    rng = np.random.default_rng(seed)
    for i, kernel in enumerate(drawn):
        x = values(rng, (kernel.m, kernel.k))
        digits, scale = runner.run(i, x)
        wanted, wanted_scale = reference(kernel, x)
        np.testing.assert_array_equal(digits, wanted, err_msg=kernel.to_json())
        np.testing.assert_array_equal(scale, wanted_scale, err_msg=kernel.to_json())
        largest = np.repeat(scale * kernel.steps, kernel.block, axis=1)[:, : kernel.k]
        error = np.abs(number(kernel, digits, scale) - x)
        # Half a step, and the rounding of scale and inverse: 2^-23 of the number.
        assert (error <= (0.5 / kernel.steps + 2.0**-23) * largest).all(), kernel.to_json()


def test_what_is_not_finite_spoils_its_own_block() -> None:
    kernel = SplitRows(isa=HERE[0], m=1, k=96)
    x = np.ones((1, 96), np.float32)
    x[0, 5], x[0, 70] = np.nan, np.inf
    digits, scale = Runner([kernel]).run(0, x)
    assert np.isfinite(scale[0]).tolist() == [False, True, False]
    scale[~np.isfinite(scale)] = 0
    assert number(kernel, digits, scale)[0, 32:64] == pytest.approx(1)


def test_one_digit_is_a_code() -> None:
    with pytest.raises(InternalError, match="2 or 3 digits"):
        SplitRows(isa="portable", m=1, k=32, digits=1)
