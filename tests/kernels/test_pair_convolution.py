"""Convolutions of bytes whose sums of 16 bits are proven, against NumPy integers, bit for bit."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from jq.base.errors import InternalError
from jq.kernels import Convolution, PairConvolution, get_isa
from jq.kernels.gemm.pair_weights import STAGE, PairWeights
from tests.kernels.harness import Runner
from tests.kernels.strategies import epilogues
from tests.kernels.test_convolution import run_and_compare
from tests.kernels.test_pair_gemm import ISAS, REQUANTIZED, drawn_codes, drawn_weight, needs_pairs
from tests.support.drawn import random_example

SHARED = {f.name for f in fields(Convolution)} & {f.name for f in fields(PairConvolution)}
PADS = st.tuples(st.integers(0, 2), st.integers(0, 2))


@st.composite
def pair_convolutions(draw: st.DrawFn) -> PairConvolution:
    """Convolutions of any shape; their weights (`described`) say how many chains there are."""
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    window = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    dilations = draw(st.tuples(st.integers(1, 2), st.sampled_from([1, 1, 2])))
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, window, strict=True)]
    long = STAGE // window[1] + 5
    return PairConvolution(
        isa=draw(st.sampled_from(ISAS)),
        batch=draw(st.integers(1, 2)),
        height=spans[0] + draw(st.integers(0, 6)),
        width=spans[1] + draw(st.integers(0, 9)),
        channels=groups * draw(st.sampled_from([1, 3, 5, 16, 21, 33, 64, long])),
        filters=groups * draw(st.sampled_from([16, 17, 24, 40])),
        window=window,
        strides=draw(st.tuples(st.integers(1, 2), st.integers(1, 3))),
        dilations=dilations,
        groups=groups,
        row_zero=draw(st.booleans()),
        epilogue=draw(epilogues()),
        chains=draw(st.integers(1, 20)),
    )


def plain(kernel: PairConvolution) -> Convolution:
    """The same of 16-bit operands."""
    return Convolution(**{name: getattr(kernel, name) for name in SHARED})


def weights_of(kernel: PairConvolution, weight: np.ndarray) -> PairWeights:
    """Pairs of a weight HWIO."""
    runs = (math.prod(kernel.runs), kernel.run, kernel.groups, kernel.span)
    return PairWeights(weight.reshape(runs), kernel.target.lanes)


def described(
    rng: np.random.Generator, kernel: PairConvolution
) -> tuple[PairConvolution, PairWeights]:
    """With a weight, and its chains."""
    pairs = weights_of(kernel, drawn_weight(rng, *kernel.weight_shape))
    return replace(kernel, chains=pairs.chains), pairs


def image(rng: np.random.Generator, kernel: PairConvolution, zero: np.ndarray) -> np.ndarray:
    """Codes, and around them the zero point's, as padding has them."""
    shape = (kernel.batch, kernel.height, kernel.width, kernel.channels)
    x = drawn_codes(rng, *shape)
    top, left = (int(rng.integers(0, (size + 1) // 2)) for size in shape[1:3])
    framed = np.broadcast_to(zero.astype(np.int8).reshape(-1, 1, 1, 1), shape).copy()
    inner = np.s_[:, top : shape[1] - top, left : shape[2] - left]
    framed[inner] = x[inner]
    return framed


@needs_pairs
@random_example(st.lists(pair_convolutions(), min_size=10, max_size=10))
def test_every_shape_weight_and_epilogue_is_exact(drawn: list[PairConvolution], seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = [described(rng, kernel) for kernel in drawn]
    runner = Runner([kernel for kernel, _ in made])
    for i, (kernel, pairs) in enumerate(made):
        ends = rng.choice([-128, 127, 0, 3], kernel.batch if kernel.row_zero else 1)
        zero = ends.astype(np.int32)
        run_and_compare(runner, i, kernel, seed + i, pairs, image(rng, kernel, zero), zero)


def large() -> list[PairConvolution]:
    """Several workgroups of rows, and of panels; runs of several segments."""
    shape: dict[str, Any] = {"batch": 2, "height": 12, "width": 11, "window": (3, 3), "chains": 1}
    kernels = []
    for isa in ISAS:
        one = PairConvolution(isa=isa, channels=64, filters=64, epilogue=REQUANTIZED, **shape)
        kernels += [
            one,
            replace(one, channels=360, filters=256, strides=(2, 2)),
            replace(one, channels=128, filters=128, groups=2, dilations=(2, 1), row_zero=True),
        ]
    return kernels


@needs_pairs
@pytest.mark.parametrize("driver", ["local-sync", "local-task"])
def test_many_workgroups(driver: str) -> None:
    rng = np.random.default_rng(0)
    made = [described(rng, kernel) for kernel in large()]
    assert any(kernel.ranges > 1 for kernel, _ in made)
    assert any(kernel.parts > 1 for kernel, _ in made)
    runner = Runner([kernel for kernel, _ in made])
    runner.load(runner.data, driver)
    for i, (kernel, pairs) in enumerate(made):
        run_and_compare(runner, i, kernel, i, pairs)


@needs_pairs
@random_example(st.lists(pair_convolutions(), min_size=30, max_size=30))
def test_a_packed_weight_is_unpacked(drawn: list[PairConvolution], seed: int) -> None:
    """The pass takes it out of the usual kernel's panels."""
    rng = np.random.default_rng(seed)
    for kernel in map(plain, drawn):
        weight = drawn_weight(rng, *kernel.weight_shape)
        packed = kernel.pack(weight)["weights"]
        np.testing.assert_array_equal(kernel.unpack(packed), weight, err_msg=kernel.to_json())


def test_what_has_no_pairs_is_refused() -> None:
    shape: dict[str, Any] = {"batch": 1, "height": 4, "width": 4, "window": (3, 3), "chains": 9}
    for isa, filters in (("avx512_vnni", 32), ("avx2", 7)):
        with pytest.raises(InternalError, match="no pairs of bytes"):
            PairConvolution(isa=isa, channels=8, filters=filters, **shape)
    assert get_isa("avx2").pairs
