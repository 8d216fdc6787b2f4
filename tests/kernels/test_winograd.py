"""`Winograd` on every instruction set that this machine has: exact where all numbers are whole, and
within the roundings of its three steps otherwise."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

from jq.base.errors import InternalError
from jq.kernels import Bias, Convolution, Residual, RoundToHalves, get_isa
from jq.kernels.convolution.winograd import G, Winograd
from tests.kernels.harness import Runner
from tests.kernels.references import reference
from tests.kernels.strategies import HERE
from tests.support.drawn import random_example

HALF = np.dtype(ml_dtypes.bfloat16)
HALVES = [isa for isa in HERE if get_isa(isa).bf16_dot and not get_isa(isa).tiles]
PAIRS = [("f32", i) for i in HERE if get_isa(i).rounds]
PAIRS += [(e, i) for i in HALVES for e in ("bf16", "bf16_bits")]
B = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])  # transposed
A = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])  # transposed


def drawn() -> st.SearchStrategy[Winograd]:
    def made(pair: tuple[str, str], high: int, wide: int, **more: Any) -> Winograd:
        element, isa = pair
        size = {"height": 2 * high + 2, "width": 2 * wide + 2, "window": (3, 3)}
        return Winograd(isa=isa, element=element, **size, **more)

    return st.builds(
        made,
        st.sampled_from(PAIRS),
        st.integers(1, 4),
        st.integers(1, 4),
        batch=st.integers(1, 3),
        channels=st.integers(1, 40),
        filters=st.integers(1, 70),
        epilogue=st.sampled_from([(), (Bias(), Residual())]),
    )


def run(
    runner: Runner, i: int, kernel: Winograd, x: np.ndarray, weight: np.ndarray, *rest: np.ndarray
) -> np.ndarray:
    rows = x.reshape(kernel.batch, kernel.height, -1)
    image = rows.astype(HALF).view(np.int16) if kernel.element == "bf16_bits" else rows
    stored = weight.astype(HALF) if kernel.halves else weight
    (y,) = runner.run(i, image, kernel.pack(stored)["weights"], *rest)
    return y


@random_example(st.lists(drawn(), min_size=10, max_size=10))
def test_whole_numbers_are_exact(kernels: list[Winograd], seed: int) -> None:
    """Filters are multiples of 4, so that the 16 points of each are whole numbers of 8 bits."""
    runner = Runner(kernels)
    for i, kernel in enumerate(kernels):
        rng = np.random.default_rng(seed + i)
        shape = (kernel.batch, kernel.height, kernel.width, kernel.channels)
        x = rng.integers(-9, 10, shape).astype(np.float32)
        weight = 4 * rng.integers(-7, 8, kernel.weight_shape).astype(np.float32)
        bias = rng.integers(-9, 10, kernel.filters).astype(np.float32)
        residual = rng.integers(-9, 10, kernel.shape).astype(np.float32)
        given = [bias, residual] if kernel.epilogue else []
        operands = [kernel.pad_columns(bias), residual] if kernel.epilogue else []
        y = run(runner, i, kernel, x, weight, *operands)
        exact = reference(kernel, x, weight, operands=[[v] for v in given])
        np.testing.assert_array_equal(y, exact, kernel.to_json())


@random_example(st.lists(drawn(), min_size=6, max_size=6))
def test_errors_are_those_of_its_steps(kernels: list[Winograd], seed: int) -> None:
    """Each point is rounded, and each sum of them: within so many units of the points' sizes."""
    kernels = [kernel for kernel in kernels if not kernel.epilogue]
    runner = Runner(kernels) if kernels else None
    for i, kernel in enumerate(kernels):
        rng = np.random.default_rng(seed + i)
        shape = (kernel.batch, kernel.height, kernel.width, kernel.channels)
        x = (rng.standard_normal(shape) * rng.choice([1, 1e3], shape)).astype(np.float32)
        weight = rng.standard_normal(kernel.weight_shape).astype(np.float32)
        if kernel.halves:
            x, weight = (v.astype(HALF).astype(np.float32) for v in (x, weight))
        assert runner is not None
        y = run(runner, i, kernel, x, weight)
        exact = reference(kernel, x.astype(np.float64), weight.astype(np.float64))
        high, wide = kernel.output
        tiles = np.stack(
            [x[:, r : r + high : 2, c : c + wide : 2] for r in range(4) for c in range(4)]
        )
        tiles = tiles.reshape(4, 4, -1, kernel.channels)
        points = np.einsum("ai,bj,ijtc->abtc", abs(B), abs(B), abs(tiles))
        filters = np.einsum("ai,bj,ijcf->abcf", abs(G), abs(G), abs(weight))
        sums = np.einsum("abtc,abcf->abtf", points, filters)
        sizes = np.einsum("pa,qb,abtf->tpqf", abs(A), abs(A), sums)
        blocks = sizes.reshape(kernel.batch, high // 2, wide // 2, 2, 2, -1)
        bound = blocks.transpose(0, 1, 3, 2, 4, 5).reshape(kernel.shape)
        units = (kernel.channels + 14) * 2.0**-24 + 2 * kernel.halves * 2.0**-8
        assert (abs(y - exact) <= units * bound).all(), kernel.to_json()


def test_what_is_not_finite_stays_visible() -> None:
    kernels = [
        Winograd(isa=i, element=e, batch=1, height=6, width=6, channels=3, filters=5, window=(3, 3))
        for e, i in PAIRS
    ]
    runner = Runner(kernels)
    for i, kernel in enumerate(kernels):
        x = np.ones((1, 6, 6, 3), np.float32)
        x[0, 2, 2, 1] = np.nan
        y = run(runner, i, kernel, x, np.ones(kernel.weight_shape, np.float32)).reshape(4, 4, 5)
        assert np.isnan(y[:3, :3]).all()


def test_where_products_are_fewer() -> None:
    """Convolutions with another window, few channels or few pixels stay as they are."""
    size = {"batch": 1, "height": 10, "width": 10, "channels": 64, "filters": 32}
    plain = {"isa": "avx2", "element": "f32", "window": (3, 3), **size}
    conv = Convolution(**plain, epilogue=(Bias(), RoundToHalves()))
    found = Winograd.of(conv)
    assert found is not None and found.results == conv.results
    assert (found.operands[0], *found.operands[2:]) == (conv.operands[0], *conv.operands[2:])
    others: list[dict[str, Any]] = [
        {"window": (3, 1)},
        {"window": (5, 5)},
        {"strides": (2, 2)},
        {"dilations": (1, 2)},
        {"height": 9},
        {"width": 11},
        {"height": 4},
        {"groups": 2},
        {"channels": 16},
        {"element": "bf16"},
        {"element": "i8"},
    ]
    for other in others:
        assert Winograd.of(Convolution(**{**plain, **other})) is None, other
    with pytest.raises(InternalError, match="no tiles of 2x2 pixels"):
        Winograd(**{**plain, "height": 9})
