"""Attention on codes: exact integers; probabilities have the codes of numbers within the bound."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import strategies as st

from jq.base.errors import InternalError
from jq.kernels import Dequantize, IntegerAttention, Kernel, Quantize
from jq.kernels.machine.isa import CHAINS
from tests.kernels.harness import Runner
from tests.kernels.references import context, probabilities
from tests.kernels.strategies import HERE, codes
from tests.support.drawn import random_example


@st.composite
def kernels(draw: st.DrawFn) -> IntegerAttention:
    dim = draw(st.sampled_from([1, 3, 4, 16, 20, 32, 64, 65]))
    kv_heads, group = draw(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (2, 2)]))
    heads = kv_heads * group
    total = (heads + 2 * kv_heads) * dim
    fused = draw(st.booleans())
    sizes = st.one_of(st.sampled_from([1, 2, 15, 16, 17, 33]), st.integers(1, 70))
    queries = draw(sizes)
    return IntegerAttention(
        isa=draw(st.sampled_from(HERE)),
        batch=draw(st.integers(1, 2)),
        queries=queries,
        keys=queries if fused else draw(sizes),
        heads=heads,
        kv_heads=kv_heads,
        dim=dim,
        widths=(total,) * 3 if fused else (heads * dim, kv_heads * dim, kv_heads * dim + 5),
        starts=(0, heads * dim, (heads + kv_heads) * dim) if fused else (0, 0, 0),
        mask=draw(st.sampled_from(["none", "keys", "full"])),
    )


def inputs(rng: np.random.Generator, kernel: IntegerAttention) -> list[np.ndarray]:
    q, k, v = (codes(rng, t.shape) for t in kernel.operands[:3])
    if kernel.starts[1]:
        k = v = q
    zeros = np.array([*rng.choice([-128, -5, 0, 127], 3), rng.choice([-128, 0])], np.int32)
    size = 4 * 127 * 127 * np.sqrt(kernel.dim)
    factors = np.array([rng.choice([3, 30]) / size, 1 / rng.choice([255, 300, 100])], np.float32)
    operands = [q, k, v, zeros, factors]
    if kernel.mask != "none":
        hidden = rng.random(kernel.operands[5].shape) < 0.4
        hidden[..., 0] = False
        operands.append(np.where(hidden, rng.choice([-np.inf, -1e9]), 0).astype(np.float32))
    return operands


def check(runner: Runner, index: int, kernel: IntegerAttention, operands: list[np.ndarray]) -> None:
    """Each integer lies between those that the bound on the probabilities allows."""
    (y,) = runner.run(index, *operands)
    q, k, v, zeros, factors, *mask = operands
    factor, scale = factors.astype(np.float64)
    p = probabilities(kernel, q, k, zeros, factor, mask[0] if mask else None)
    largest = kernel.dim * 255 * 255 * factor
    bound = ((kernel.keys / CHAINS + 42) + 6 * largest) * 2.0**-24 + 2e-7
    low, high = (
        np.clip(np.rint(p * (1 + side * bound) / scale) + zeros[3], -128, 127) for side in (-1, 1)
    )
    assert 2 * bound < 0.06 * scale  # of a step at worst, so that it decides nearly every integer
    sizes = np.abs(v.astype(np.int64) - zeros[2])
    allowed = context(kernel, high - low + zeros[3], sizes, zeros * [1, 1, 0, 1])
    error = np.abs(y.astype(np.int64) - context(kernel, low, v, zeros))
    assert (error <= allowed).all(), kernel.to_json()


@random_example(st.lists(kernels(), min_size=8, max_size=8))
def test_every_shape(drawn: list[IntegerAttention], seed: int) -> None:
    runner = Runner(drawn)
    rng = np.random.default_rng(seed)
    for i, kernel in enumerate(drawn):
        check(runner, i, kernel, inputs(rng, kernel))


SMALL = IntegerAttention(
    isa=HERE[0],
    batch=1,
    queries=3,
    keys=5,
    heads=2,
    kv_heads=2,
    dim=5,
    widths=(10, 10, 10),
    starts=(0, 0, 0),
    mask="full",
)


MASKS = {
    "first alone": [0] + [-1e9] * 127,
    "holes": [-np.inf, 0, -1e9, 0] * 8 + [-np.inf] * 96,
    "one lane past a pack": [0] * 65 + [-np.inf] * 63,
    "all": [0] * 128,
    "all but the first": [-np.inf] + [0] * 127,
    "the last": [-1e9] * 127 + [0],
    "none": [-1e9] * 128,
    "none at all": [-np.inf] * 128,
    "faint": [0] * 20 + [-3] * 108,
    "no number": [0] * 20 + [np.nan] + [-1e9] * 107,
    "raised": [5e8] * 40 + [0] * 88,
    "raised beyond all": [3e38] * 40 + [0] * 88,
    "infinite": [np.inf] * 2 + [0] * 126,
    "the lowest": [-3.4028235e38] * 128,
    "low, and a little higher": [-3.4e38] * 100 + [-2.4e38] * 28,
}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("isa", HERE)
def test_masks_are_added_to_whole_scores(isa: str) -> None:
    """With the part of the zero point of k: a row that a large number hides is as in float32."""
    kernel = dataclasses.replace(SMALL, isa=isa, batch=len(MASKS), queries=17, keys=40)
    operands = inputs(np.random.default_rng(3), kernel)
    operands[3][:3] = 5, 127, -5
    operands[4][0] = 2.0**-12  # scores are exact
    rows = np.array(list(MASKS.values()), np.float32)[:, :40]
    operands[5] = np.ascontiguousarray(np.broadcast_to(rows[:, None], (len(rows), 17, 40)))
    check(Runner([kernel]), 0, kernel, operands)


@pytest.mark.parametrize("keys", [128, 80, 16])
@pytest.mark.parametrize("isa", HERE)
def test_keys_that_a_mask_hides_change_nothing(isa: str, keys: int) -> None:
    """Those after the last one shown are left out; with a mask by query none is: equal bits."""
    by_key = IntegerAttention(
        isa=isa,
        batch=len(MASKS),
        queries=19,
        keys=keys,
        heads=2,
        kv_heads=1,
        dim=20,
        widths=(40, 20, 20),
        starts=(0, 0, 0),
        mask="keys",
    )
    by_query = dataclasses.replace(by_key, mask="full")
    assert by_key.skips and not by_query.skips
    runner, operands = Runner([by_key, by_query]), inputs(np.random.default_rng(2), by_key)[:5]
    mask = np.array(list(MASKS.values()), np.float32)[:, np.linspace(0, 127, keys).astype(int)]
    full = np.ascontiguousarray(np.broadcast_to(mask[:, None], (len(mask), 19, keys)))
    (want,), (got,) = runner.run(1, *operands, full), runner.run(0, *operands, mask)
    np.testing.assert_array_equal(got, want)


def test_the_result_is_rescaled_and_quantized_exactly() -> None:
    """The epilogue works on the exact integers; columns of the last head are padded."""
    final = dataclasses.replace(SMALL, epilogue=(Dequantize(), Quantize()))
    rng = np.random.default_rng(0)
    operands = inputs(rng, SMALL)
    scale = rng.uniform(0.5, 1, 10).astype(np.float32)
    step, zero = np.array([37.0], np.float32), np.array([3], np.int32)
    runner = Runner([SMALL, final])
    (acc,) = runner.run(0, *operands)
    (y,) = runner.run(1, *operands, final.pad_columns(scale), step, zero)
    want = np.clip(np.rint(acc.astype(np.float32) * scale / step) + 3, -128, 127)
    np.testing.assert_array_equal(y, want.astype(np.int8))


def test_a_row_that_sees_no_key_is_zero() -> None:
    """It is not a number, which has the code of 0."""
    operands = inputs(np.random.default_rng(1), SMALL)
    operands[5][:, 1] = -np.inf
    (y,) = Runner([SMALL]).run(0, *operands)
    assert (y[:, 1] == 0).all() and y[:, 0].any()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InternalError, match="leave 9 columns"):
        dataclasses.replace(SMALL, widths=(10, 10, 9))
    with pytest.raises(InternalError, match="more than a row tile can hold"):
        dataclasses.replace(SMALL, keys=1 << 20)
    with pytest.raises(InternalError, match="unknown mask"):
        dataclasses.replace(SMALL, mask="causal")
    assert Kernel.from_json(SMALL.to_json()) == SMALL
