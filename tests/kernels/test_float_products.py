"""Products of bf16 and f32 numbers, on every instruction set that this machine has.

The oracle rounds operands by ml_dtypes and sums in float64. A sum of K products, each exact (bf16)
or rounded with its sum (f32), is off by K roundings of 2^-24 of the sum of magnitudes at most, and
matrix tiles add two sums. Numbers below 2^-126 may count as 0, where they are multiplied and where
they come out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

from jq.base.errors import InternalError
from jq.kernels import (
    Bias,
    Clamp,
    Convolution,
    Depthwise,
    Gemm,
    HalfResidual,
    Quantize,
    Residual,
    RoundToHalves,
    Step,
)
from tests.kernels.harness import Runner
from tests.kernels.references import reference
from tests.kernels.strategies import HERE, sizes
from tests.support.drawn import random_example

UNIT, SMALLEST = 2.0**-24, 2.0**-126
HALF = np.dtype(ml_dtypes.bfloat16)
TYPES = {"bf16": HALF, "bf16_bits": HALF, "f32": np.dtype(np.float32)}
EPILOGUES: list[tuple[Step, ...]] = [
    *[(), (Bias(),), (Bias(), Residual()), (Residual(), Clamp())],
    *[(HalfResidual(),), (Bias(), HalfResidual(), Clamp())],
]


def drawn(rng: np.random.Generator, shape: tuple[int, ...], element: str = "f32") -> np.ndarray:
    """Numbers of all sizes whose products stay finite: normal ones, zeros, subnormal, large."""
    usual = rng.standard_normal(shape)
    scale = rng.choice([1.0, 1.0, 1.0, 0.0, 1e-40, 1e-20, 1e15], shape)
    return (usual * scale).astype(np.float32).astype(TYPES[element])


def stored(x: np.ndarray, element: str) -> np.ndarray:
    """Floats as a kernel reads them."""
    return x.astype(HALF).view(np.int16) if element == "bf16_bits" else x


def sums(x: np.ndarray, w: np.ndarray, element: str) -> tuple[np.ndarray, np.ndarray]:
    """The exact [M, N] product of rounded operands, and how far a kernel's may be from it."""
    a, b = (v.astype(TYPES[element]).astype(np.float64) for v in (x, w))
    near = (len(w) + 2) * UNIT * (abs(a) @ abs(b))
    tiny = SMALLEST * (abs(a).sum(1)[:, None] + abs(b).sum(0) + len(w) + 1)
    return a @ b, near + tiny


def products() -> st.SearchStrategy[Gemm]:
    return st.builds(
        Gemm,
        isa=st.sampled_from(HERE),
        m=sizes,
        k=sizes,
        n=sizes,
        element=st.sampled_from([*TYPES]),
        epilogue=st.sampled_from(EPILOGUES),
    )


@random_example(st.lists(products(), min_size=12, max_size=12))
def test_every_shape_is_within_the_bound(kernels: list[Gemm], seed: int) -> None:
    far = Gemm(isa="avx2", m=7, k=33, n=513, element="f32", epilogue=(Bias(), Residual()))
    kernels = [*kernels, *[far] * (far.isa in HERE)]  # its residual is fetched ahead
    runner = Runner(kernels)
    for i, kernel in enumerate(kernels):
        rng = np.random.default_rng(seed + i)
        x = drawn(rng, (kernel.m, kernel.k))
        weight = drawn(rng, (kernel.k, kernel.n), kernel.element)
        whole = (kernel.m, kernel.n)
        added = {
            Bias(): drawn(rng, (1, kernel.n)),
            Residual(): drawn(rng, whole),
            HalfResidual(): drawn(rng, whole, "bf16_bits").astype(np.float32),
        }
        given = [[added[s]] if s in added else [] for s in kernel.epilogue]
        packed = kernel.pack(weight)
        read = {
            Bias(): kernel.pad_columns(added[Bias()][0]),
            Residual(): added[Residual()],
            HalfResidual(): stored(added[HalfResidual()], "bf16_bits"),
        }
        operands = [read[s] for s in kernel.epilogue if s in read]
        (y,) = runner.run(i, stored(x, kernel.element), packed["weights"], *operands)
        exact, bound = sums(x, weight, kernel.element)
        for (value,) in filter(None, given):
            exact = exact + value
            bound = bound + UNIT * (abs(exact) + bound) + SMALLEST
        if Clamp() in kernel.epilogue:
            exact = np.maximum(exact, 0)
        assert (abs(y - exact) <= bound + UNIT * abs(exact)).all(), kernel.to_json()
        told = reference(kernel, x, weight, operands=given)  # of what bits stand for
        assert (abs(told - exact) <= bound + UNIT * abs(exact)).all()
        kept = kernel.unpack(packed["weights"])
        np.testing.assert_array_equal(kept.view(weight.dtype), weight)


SHAPES = [(1, 1, 1), (3, 33, 17), (40, 31, 33), (17, 64, 49)]


def identities(element: str, *steps: Step) -> list[Gemm]:
    shapes = [(i, m, k) for i in HERE for m, k, _ in SHAPES]
    return [Gemm(isa=i, m=m, k=k, n=k, element=element, epilogue=steps) for i, m, k in shapes]


@pytest.mark.parametrize("element", ["bf16", "f32"])
def test_operands_and_results_are_rounded_half_to_even(element: str) -> None:
    """By an identity, every normal number comes out as ml_dtypes rounds it, ties and carries into
    the exponent included; by the product, or (of float32) by the epilogue."""
    step = RoundToHalves()
    kernels = identities(element, *[step] * (element == "f32"))
    runner, rng = Runner(kernels), np.random.default_rng(0)
    for i, kernel in enumerate(kernels):
        upper = rng.integers(0x0080, 0x7F00, (kernel.m, kernel.k), dtype=np.uint32)
        lower = rng.choice(np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32), upper.shape)
        x = ((upper << 16) + lower + rng.choice([0, 1 << 31], upper.shape).astype(np.uint32)).view(
            np.float32
        )
        (y,) = runner.run(i, x, kernel.pack(np.eye(kernel.k, dtype=TYPES[element]))["weights"])
        found = y if element == "bf16" else y.view(HALF)
        np.testing.assert_array_equal(found.astype(np.float32), x.astype(HALF).astype(np.float32))


def test_results_that_are_infinite_or_nan() -> None:
    """As the epilogue rounds them, beside numbers whose upper bits are one step up."""
    kernels = [
        Gemm(isa=i, m=4, k=4, n=20, element="f32", epilogue=(RoundToHalves(),)) for i in HERE
    ]
    runner, x = Runner(kernels), np.eye(4, dtype=np.float32)
    weight = np.ones((4, 20), np.float32)
    x[range(4), range(4)] = np.inf, np.nan, -3.4e38, 1 + 2**-8 + 2**-20
    for i, kernel in enumerate(kernels):
        (y,) = runner.run(i, x, kernel.pack(weight)["weights"])
        found = y.view(HALF).astype(np.float32)
        assert (found[0] == np.inf).all() and np.isnan(found[1]).all()
        assert (found[2] == -np.inf).all() and (found[3] == 1 + 2**-7).all()


def test_bits_of_what_is_not_negative_are_in_the_order_of_the_numbers() -> None:
    """NaN, which has a sign by which it came, is above infinity."""
    steps = (Clamp(), RoundToHalves(ordered=True))
    kernels = [Gemm(isa=i, m=4, k=4, n=20, element="f32", epilogue=steps) for i in HERE]
    runner, x = Runner(kernels), np.eye(4, dtype=np.float32)
    for sign in (1.0, -1.0):
        x[range(4), range(4)] = np.inf, np.copysign(np.nan, sign), -2.0, 0.5
        for i, kernel in enumerate(kernels):
            (bits,) = runner.run(i, x, kernel.pack(np.ones((4, 20), np.float32))["weights"])
            assert (bits[1] > bits[0]).all() and (bits[0] > bits[3]).all()
            assert (bits[3] > bits[2]).all() and not bits[2].any()


@pytest.mark.parametrize("element", TYPES)
def test_infinite_and_nan_stay(element: str) -> None:
    """Zeros that fill up an odd K, or a tile, make no NaN of them; other rows stay as they are."""
    kernels = [
        Gemm(isa=i, m=m, k=k, n=n, element=element) for i in HERE for m, k, n in SHAPES if m > 1
    ]
    runner = Runner(kernels)
    for i, kernel in enumerate(kernels):
        x = np.ones((kernel.m, kernel.k), np.float32)
        payload = np.array([0x7FFFFFFF], np.uint32).view(np.float32)[0]  # a carry makes -0 of it
        x[0, -1], x[1, 0], x[2, -1] = np.inf, payload, -3.4e38
        weight = np.full((kernel.k, kernel.n), 2, TYPES[element])
        (y,) = runner.run(i, stored(x, element), kernel.pack(weight)["weights"])
        assert (y[0] == np.inf).all() and np.isnan(y[1]).all() and (y[2] == -np.inf).all()
        assert (y[3:] == 2 * kernel.k).all()


def test_subnormal_numbers_count_as_themselves_or_as_zero() -> None:
    kernels = identities("bf16")
    runner = Runner(kernels)
    for i, kernel in enumerate(kernels):
        x = np.full((kernel.m, kernel.k), 1e-39, np.float32)
        (y,) = runner.run(i, x, kernel.pack(np.eye(kernel.k, dtype=TYPES["bf16"]))["weights"])
        assert np.isin(y, [0, x.astype(TYPES["bf16"]).astype(np.float32)[0, 0]]).all()


def test_codes_of_a_product_of_floats() -> None:
    """A quantization that follows is that of the sums, but where a sum is next to a half."""
    kernels = [Gemm(isa=i, m=20, k=40, n=36, element="bf16", epilogue=(Quantize(),)) for i in HERE]
    runner, rng = Runner(kernels), np.random.default_rng(0)
    x = rng.integers(-8, 9, (20, 40)).astype(np.float32)
    weight = rng.integers(-8, 9, (40, 36)).astype(TYPES["bf16"])
    scale, zero = np.array([16.0], np.float32), np.array([3], np.int32)
    for i, kernel in enumerate(kernels):
        (y,) = runner.run(i, x, kernel.pack(weight)["weights"], scale, zero)
        expected = reference(kernel, x, weight, operands=[[scale, zero]])  # whole numbers: exact
        np.testing.assert_array_equal(y, expected)


IMAGES: list[dict[str, Any]] = [
    {"channels": 3, "window": (3, 3), "strides": (2, 2), "height": 9, "width": 11},
    {"channels": 20, "window": (2, 3), "height": 5, "width": 6},
    {"channels": 3, "window": (5, 5), "height": 9, "width": 8},  # tiles half full
    {"channels": 8, "window": (3, 2), "dilations": (1, 2), "height": 6, "width": 7, "groups": 2},
    {"channels": 32, "window": (1, 1), "strides": (2, 2), "height": 7, "width": 7},
    {"channels": 32, "window": (3, 3), "height": 4, "width": 16},  # matrix tiles in place
]


def test_convolutions() -> None:
    given = [("bf16", isa) for isa in HERE if isa not in ("avx_vnni", "sse2")]
    given += [("f32", HERE[0]), ("bf16_bits", HERE[0])]
    kernels = [
        Convolution(isa=i, batch=2, filters=20, element=e, epilogue=(Bias(),), **image)
        for e, i in given
        for image in IMAGES
    ]
    runner, rng = Runner(kernels), np.random.default_rng(0)
    for i, kernel in enumerate(kernels):
        x = drawn(rng, (2, kernel.height, kernel.width, kernel.channels))
        weight = drawn(rng, kernel.weight_shape, kernel.element)
        bias = drawn(rng, (20,))
        packed = kernel.pack(weight)["weights"]
        rows = x.reshape(2, kernel.height, -1)
        (y,) = runner.run(i, stored(rows, kernel.element), packed, kernel.pad_columns(bias))
        exact = reference(kernel, x, weight, operands=[[bias]])
        magnitude = reference(replace(kernel, epilogue=()), abs(x), abs(weight)) + abs(bias)
        terms = np.prod(kernel.weight_shape[:3])
        bound = (terms + 4) * UNIT * magnitude + SMALLEST * 1e17 * terms  # operands are smaller
        assert (abs(y - exact) <= bound).all(), kernel.to_json()


def depthwise() -> st.SearchStrategy[Depthwise]:
    some, pad = st.integers(1, 3), st.tuples(st.integers(0, 2), st.integers(0, 2))
    return st.builds(
        Depthwise,
        isa=st.sampled_from(HERE),
        batch=st.integers(1, 2),
        height=st.integers(7, 12),
        width=st.sampled_from([7, 12, 40]),
        channels=st.sampled_from([1, 3, 16, 20, 33]),
        window=st.tuples(some, some),
        strides=st.sampled_from([(1, 1), (2, 2), (1, 2)]),
        dilations=st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 3)]),
        padding=st.tuples(pad, pad),
        element=st.sampled_from([*TYPES]),
        epilogue=st.sampled_from([(), (Bias(),), (Bias(), Clamp())]),
    )


@random_example(st.lists(depthwise(), min_size=10, max_size=10))
def test_filters_for_each_channel(kernels: list[Depthwise], seed: int) -> None:
    """Padding is 0 beside infinity and NaN, which stay where a window reads them."""
    runner = Runner(kernels)
    for i, kernel in enumerate(kernels):
        rng = np.random.default_rng(seed + i)
        shape = (kernel.batch, kernel.height, kernel.width, kernel.channels)
        weight = drawn(rng, kernel.weight_shape, kernel.element)
        bias = drawn(rng, (kernel.channels,))
        weight[abs(weight) < SMALLEST] = 1  # a subnormal one may make NaN of infinity
        packed, terms = kernel.pack(weight)["weights"], int(np.prod(kernel.window))
        given = [[bias]] if Bias() in kernel.epilogue else []
        operands = [kernel.pad_columns(b) for (b,) in given]
        for special in ([], [np.inf, np.nan]):
            x = drawn(rng, shape)
            for value in special:
                x[tuple(rng.integers(0, shape))] = value
            (y,) = runner.run(i, stored(x, kernel.element), packed, *operands)
            with np.errstate(invalid="ignore", over="ignore"):
                steps = [*given, *([[]] if Clamp() in kernel.epilogue else [])]
                exact = reference(kernel, x, weight, operands=steps)
                plain = replace(kernel, epilogue=())
                size = reference(plain, abs(x), abs(weight)).astype(np.float64) + abs(bias).max()
                bound = (terms + 4) * UNIT * size + SMALLEST * 1e17 * terms
                near = abs(y - exact) <= bound
            whole = np.isfinite(size)
            assert near[whole].all(), kernel.to_json()
            np.testing.assert_array_equal(np.isnan(y), np.isnan(exact))
            assert (y == exact)[np.isinf(exact)].all()


def test_what_floats_have_not() -> None:
    for more in ({"unsigned": True}, {"row_zero": True}, {"column_zero": True}):
        with pytest.raises(InternalError):
            Gemm(isa="avx2", m=8, k=8, n=8, element="bf16", **more)
    with pytest.raises(InternalError):
        Gemm(isa="avx2", m=8, k=8, n=8, element="bf16").pack(np.zeros((8, 8), np.int8))
