"""Integer rescale and functions: Python's exact integers, float64, and bits on every runner."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jq.errors import FormatError
from jq.formats import NUMPY
from jq.formats.integer_functions import Output, root, softmax, unit_rows
from jq.formats.requantize import multiplier, rescale, rescale_by
from tests.programs import RUNNERS, Case, check

FACTORS = [0.3, 2.0**-31, 1.0, 1.5, 1000.7, 0.999999999999, 7e-5, -0.4, -3.0, 0.0, 0.5]
INT32 = 2**31


def gemmlowp(x: int, mantissa: int, exponent: int) -> int:
    """The definition, in unbounded integers: high multiply, then shift with ties away from 0."""
    x = min(max(x << max(exponent, 0), -INT32), INT32 - 1)
    product = x * mantissa
    nudge = 2**30 if product >= 0 else 1 - 2**30
    total = product + nudge
    high = abs(total) // INT32 * (1 if total >= 0 else -1)  # C++ division truncates
    by = max(-exponent, 0)
    half = (1 << by) >> 1
    return (abs(high) + half >> by) * (1 if high >= 0 else -1)


@given(st.floats(2.0**-38, 2.0**30), st.lists(st.integers(-INT32, INT32 - 1), min_size=1))
def test_rescale_is_the_definition(factor, values):
    mantissa, exponent = (int(v) for v in multiplier(np.array(factor)))
    assert 2**30 <= mantissa < 2**31
    assert mantissa * 2.0 ** (exponent - 31) == pytest.approx(factor, rel=2.0**-31)
    got = rescale_by(NUMPY, np.array(values, np.int64), factor)
    assert got.tolist() == [gemmlowp(x, mantissa, exponent) for x in values]


def test_ties_go_away_from_zero():
    x = np.arange(-9, 10, dtype=np.int64)
    half = rescale_by(NUMPY, x * 2, 0.25)
    assert half.tolist() == [int(math.copysign(math.floor(abs(v) / 2 + 0.5), v)) for v in x]


@pytest.mark.parametrize("bad", [math.inf, math.nan, 2.0**31])
def test_factors_that_have_no_mantissa(bad):
    with pytest.raises(FormatError, match="rescale factor"):
        multiplier(np.array(bad))


def _edge_values() -> np.ndarray:
    small = np.arange(-40, 41)
    ends = [-INT32, INT32 - 1, 2**30, -(2**30), 2**30 - 1, 12345678]
    return np.concatenate([small, ends]).astype(np.int64)


def _rescaled(ops, x, mantissa, left, right):
    return rescale(ops, x, mantissa, left, right)


def _normal(center):
    return lambda ops, x: unit_rows(ops, x, 0.03, 1e-5, center=center, axis=1)


@pytest.mark.parametrize("runner", RUNNERS)
def test_equal_bits_everywhere(runner):
    x = _edge_values()
    mantissa, exponent = multiplier(np.array(FACTORS))
    grid = np.repeat(x[:, None], len(FACTORS), 1)
    parts = [
        np.broadcast_to(v.astype(np.int64), grid.shape).copy()
        for v in (mantissa, np.maximum(exponent, 0), np.maximum(-exponent, 0))
    ]
    rng = np.random.default_rng(0)
    codes = rng.integers(-255, 256, (5, 24)).astype(np.int64)
    codes[1], codes[2, 3:] = 0, 0
    out = Output(1 / 255, -128, -128, 127)
    squares = np.concatenate([np.arange(1, 50), (np.arange(1, 40) ** 12) % 2**62 + 1])
    cases = [
        Case(_rescaled, [grid, *parts]),
        Case(lambda ops, v: root(ops, v), [squares.astype(np.int64)]),
        Case(lambda ops, v: softmax(ops, v, 0.07, 1, out), [codes]),
        Case(_normal(True), [codes]),
        Case(_normal(False), [codes]),
    ]
    check(cases, runner)


@given(st.integers(1, 2**62 - 1), st.integers(1, 2**31 - 1))
def test_root_is_exact(x, r):
    values = [x, r * r, r * r - 1 or 1, min(r * r + 1, 2**62 - 1)]
    got = root(NUMPY, np.array(values, np.int64))
    assert got.tolist() == [math.isqrt(v) for v in values]


@pytest.mark.parametrize("step", [0.002, 0.05, 0.7])
@pytest.mark.parametrize("n", [2, 12, 500])
def test_softmax_within_its_bound(step, n):
    """Every pair of codes (n = 2), and rows of random ones."""
    if n == 2:
        a, b = np.meshgrid(np.arange(256), np.arange(256))
        x = np.stack([a.ravel(), b.ravel()], 1).astype(np.int64)
    else:
        x = np.random.default_rng(n).integers(-128, 128, (64, n)).astype(np.int64)
    real = step * x
    e = np.exp(real - real.max(1, keepdims=True))
    exact = e / e.sum(1, keepdims=True)
    out = Output(float(exact.max()) / 255, -128, -128, 127)
    k = 30 - math.ceil(math.log2(n))
    bound = 0.5 + (n + 3) * 2.0 ** -(k + 1) / out.scale + 2.0**-22 / out.scale
    steps = softmax(NUMPY, x, step, 1, out).astype(np.float64) + 128
    assert np.abs(steps - exact / out.scale).max() <= bound


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(("n", "epsilon"), [(2, 1e-12), (17, 1e-5), (768, 1e-6)])
def test_rows_within_their_bound(center, n, epsilon):
    """Three units of 2^-30, and half a unit of the rounded epsilon."""
    rng = np.random.default_rng(n)
    x = rng.integers(-255, 256, (200, n)) >> rng.integers(0, 8, (200, 1))
    x[0], x[1, 1:] = 7, 0
    step = 0.013
    u = step * (x - x.mean(1, keepdims=True) if center else x)
    square = (u**2).sum(1, keepdims=True) + n * epsilon
    unit = step / n if center else step
    # epsilon in integers is right to half a unit, and at least one
    slack = np.maximum(0.5, np.maximum(0, 1 - n * epsilon / unit**2)) * unit**2
    low, high = (np.abs(u) / np.sqrt(np.maximum(square + d, 1e-300)) for d in (slack, -slack))
    got = unit_rows(NUMPY, x.astype(np.int64), step, epsilon, center=center, axis=1)
    size = np.abs(got) / 2.0**30
    assert (got * np.round(u, 9) >= 0).all()
    assert (size >= low - 3 * 2.0**-30).all()
    safe = (square - slack > 0)[:, 0]
    assert (size[safe] <= high[safe] + 3 * 2.0**-30).all()
