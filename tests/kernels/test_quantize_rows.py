"""Codes, scales and zero points of rows against `jq.formats`, bit for bit."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from jq.formats.arrays import NUMPY
from jq.formats.base import Encoding, get_format
from jq.kernels import QuantizeRows, RowQuantization
from tests.kernels.harness import Runner
from tests.kernels.strategies import HERE, sizes
from tests.support.drawn import random_example

FLIP = np.int8(-128)

schemes = st.one_of(
    st.builds(RowQuantization, narrow=st.booleans(), unsigned=st.booleans()),
    st.builds(
        RowQuantization,
        scheme=st.just("asymmetric"),
        unsigned_zero=st.booleans(),
        unsigned=st.booleans(),
    ),
    st.builds(
        RowQuantization,
        scheme=st.just("static"),
        narrow=st.booleans(),
        measured=st.booleans(),
        unsigned=st.booleans(),
    ),
)
kernels = st.builds(
    QuantizeRows, isa=st.sampled_from(HERE), m=sizes, k=sizes, scheme=schemes, factors=st.booleans()
)
FACTORS = np.float32([1.0, 0.37, 2.0, 0.25, 1.9])  # column after column


def rows(rng: np.random.Generator, m: int, k: int) -> np.ndarray:
    """Rows of many magnitudes: ties, zeros, tiny, huge, one-sided. IREE's runtime takes subnormal
    numbers for zero, so there are none.
    """
    x = rng.standard_normal((m, k)).astype(np.float32) * np.exp2(rng.integers(-40, 40, (m, 1)))
    kind = rng.integers(0, 8, (m, 1))
    x = np.where(kind == 0, rng.integers(-255, 256, (m, k)) / 2, x)
    x = np.where(kind == 1, np.abs(x), x)
    x = np.where(kind == 2, -np.abs(x), x)
    x = np.where(kind == 3, 0.0, x)
    x = np.where(kind == 4, x * np.float32(1e-38), x)
    return np.where(np.abs(x) < 2.0**-126, 0, x).astype(np.float32)


def expected(
    x: np.ndarray, scheme: RowQuantization, scale: np.ndarray, zero: int = 0
) -> list[np.ndarray]:
    """Codes, and per row scale and zero point, by the formats."""
    m, k = x.shape
    if scheme.scheme == "static":
        steps = NUMPY.div(x, np.broadcast_to(scale, x.shape))
        steps = np.rint(np.where(np.isnan(steps), np.float32(0), steps))
        codes = np.clip(steps.astype(np.float64) + zero, scheme.low, 127)
        return [codes.astype(np.int8)]
    options = () if scheme.narrow else (("divisor", "absmax/127.5"),)
    if scheme.scheme == "asymmetric":
        options = ()
    name = "uint8" if scheme.unsigned_zero else "int8"
    enc = Encoding(name, (m, k), (1, 0), scheme.scheme, options=options)
    values = get_format(name).quantize_dynamic(NUMPY, x, enc)
    return [np.asarray(values[part]) for part in ("codes", "scale", "zero_point") if part in values]


def check(
    runner: Runner, index: int, kernel: QuantizeRows, x: np.ndarray, scale: float, zero: int = 0
) -> None:
    given_scale = np.array([scale], np.float32)
    static = [] if kernel.scheme.dynamic else [given_scale, np.array([zero], np.int32)]
    factors = [np.resize(FACTORS, kernel.k)] * kernel.factors
    codes, *rest = runner.run(index, x, *factors, *static)
    for f in factors:
        x = x * f
        x = np.where(np.abs(x) < 2.0**-126, np.float32(0), x)
    want, *want_rest = expected(x, kernel.scheme, given_scale, zero)
    if kernel.scheme.unsigned:
        codes = codes ^ FLIP
    np.testing.assert_array_equal(codes, want, err_msg=kernel.to_json())
    assert len(rest) == len(want_rest)
    for got, part in zip(rest, want_rest, strict=True):
        np.testing.assert_array_equal(got, part.reshape(got.shape), err_msg=kernel.to_json())


@random_example(st.lists(kernels, min_size=12, max_size=12))
def test_every_shape_is_exact(drawn: list[QuantizeRows], seed: int) -> None:
    runner = Runner(drawn)
    rng = np.random.default_rng(seed)
    for i, kernel in enumerate(drawn):
        for scale, zero in ((0.5, 0), (0.0371, 127), (1e-20, -128), (1e30, 3)):
            check(runner, i, kernel, rows(rng, kernel.m, kernel.k), scale, zero)


def test_special_values() -> None:
    """NaN, infinities, signed zeros and subnormals, alone and among others."""
    drawn = [
        QuantizeRows(isa=isa, m=8, k=21, scheme=RowQuantization(scheme=s, unsigned_zero=u))
        for isa in HERE
        for s in ("symmetric", "asymmetric", "static")
        for u in (False, True)
    ]
    x = np.random.default_rng(0).standard_normal((8, 21)).astype(np.float32)
    x[0, 3], x[1, 20], x[2, 17], x[3] = np.nan, np.inf, -np.inf, -0.0
    x[4, 5], x[4, 6], x[5], x[6] = np.inf, np.nan, 1e-42, np.nan
    runner = Runner(drawn)
    for i, kernel in enumerate(drawn):
        check(runner, i, kernel, x, 0.1)


def test_static_scale_divides_exactly() -> None:
    """Quotients one step beside every tie, for many scales: a reciprocal would move some."""
    kernel = QuantizeRows(isa=HERE[0], m=256, k=192, scheme=RowQuantization("static", narrow=False))
    runner = Runner([kernel])
    rng = np.random.default_rng(1)
    ties = np.arange(-128, 128, dtype=np.float32)[:, None] + np.float32(0.5)
    for scale in rng.uniform(1, 2, 40) * np.exp2(rng.integers(-70, 100, 40)):
        steps = rng.integers(-3, 4, (256, 192))
        near = (ties * np.float32(scale)).astype(np.float32) + np.zeros((256, 192), np.float32)
        x = (near.view(np.int32) + steps.astype(np.int32)).view(np.float32)
        check(runner, 0, kernel, x, float(np.float32(scale)))


def test_a_measured_scale_may_be_any_number() -> None:
    """Multiplying by an inverse and its remainder would overflow or lose some of them."""
    scheme = RowQuantization("static", narrow=False, measured=True)
    kernel = QuantizeRows(isa=HERE[0], m=16, k=37, scheme=scheme)
    runner, rng = Runner([kernel]), np.random.default_rng(2)
    for scale in (2.0**-126, 1.2e-38, 3e38, np.inf, np.nan, 0.0, 1 / 255):
        x = (rng.integers(-300, 300, (16, 37)) / np.float32(2)).astype(np.float32)
        with np.errstate(all="ignore"):
            x = x * np.float32(scale if np.isfinite(scale) and scale else 1)
        x = np.where(np.abs(x) < 2.0**-126, np.float32(0), x)
        with np.errstate(all="ignore"):
            check(runner, 0, kernel, x, float(np.float32(scale)), 5)
