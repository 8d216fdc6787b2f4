"""Integer rescale and functions: Python's exact integers, float64, and bits on every runner."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jq.base.errors import FormatError
from jq.formats import NUMPY
from jq.formats.integer_functions import (
    Output,
    exponential_bits,
    exponentials,
    ratio,
    root,
    segments,
    softmax,
    tabulated,
    unit_rows,
)
from jq.formats.requantize import DOUBLE, SINGLE, Rescaling, multiplier
from tests.support.programs import RUNNERS, Case, check

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


def once(x: int, mantissa: int, exponent: int) -> int:
    """XNNPACK's definition, in unbounded integers; what the result would not hold saturates."""
    if exponent > 0:
        end = (INT32 - 1) >> exponent
        x = min(max(x, -1 - end), end)
    s = 31 - exponent
    return (x * mantissa + (1 << (s - 1))) >> s


DEFINITIONS = {"double": gemmlowp, "single": once}
WAYS = [Rescaling(rounding, bits) for rounding in DEFINITIONS for bits in (64, 32)]


@given(st.floats(2.0**-35, 2.0**7), st.lists(st.integers(-(1 << 39), 1 << 39), min_size=1))
def test_a_sum_of_64_bits_has_a_mantissa_of_15(factor, values):
    """LiteRT's definition, in unbounded integers, and the signs of both sides."""
    mantissa, exponent = (int(v) for v in multiplier(np.array(factor)))
    reduced = (mantissa + (1 << 15)) >> 16 if mantissa < 0x7FFF0000 else 0x7FFF
    by = 15 - exponent
    want = [(x * reduced + (1 << (by - 1)) >> by) if exponent >= -31 else 0 for x in values]
    x = np.array(values)
    for sign in (1, -1):
        parts = DOUBLE.split(np.array(sign * factor), wide=True)
        m, left, right = (np.full(x.shape, v, np.int32) for v in parts)
        found = DOUBLE.rescale(NUMPY, sign * x, m, (left, right))
        assert found.tolist() == np.array(want).astype(np.int32).tolist()


@pytest.mark.parametrize("way", WAYS, ids=str)
@given(st.floats(2.0**-38, 2.0**28), st.lists(st.integers(-INT32, INT32 - 1), min_size=1))
def test_rescale_is_the_definition(way, factor, values):
    mantissa, exponent = (int(v) for v in multiplier(np.array(factor)))
    assert 2**30 <= mantissa < 2**31
    assert mantissa * 2.0 ** (exponent - 31) == pytest.approx(factor, rel=2.0**-31)
    got = way.by(NUMPY, np.array(values, np.int32), factor)
    wanted = [DEFINITIONS[way.rounding](x, mantissa, exponent) for x in values]
    assert got.tolist() == wanted


@pytest.mark.parametrize("rounding", DEFINITIONS)
def test_elements_of_32_bits_give_the_same_numbers(rounding):
    """Random and corner triples of value, mantissa and exponent."""
    rng = np.random.default_rng(0)
    ends = np.array([*_edge_values(), -INT32 + 1, 65535, 65536, -65536, 32768, -32768])
    values = [rng.integers(-INT32, INT32, 300_000), rng.integers(-300, 300, 100_000)]
    x = np.concatenate([*values, np.repeat(ends, 2000)]).astype(np.int32)
    mantissa = rng.integers(2**30, INT32, x.size).astype(np.int32)
    mantissa[::7], mantissa[::11], mantissa[::17] = 2**30, INT32 - 1, 0
    mantissa[::13] *= -1
    exponent = rng.integers(-40, 30, x.size).astype(np.int32)
    shifts = np.maximum(exponent, 0), np.maximum(-exponent, 0)
    wide, narrow = (Rescaling(rounding, b).rescale(NUMPY, x, mantissa, shifts) for b in (64, 32))
    assert np.array_equal(wide, narrow)
    some = rng.integers(0, x.size, 2000)
    wanted = [
        DEFINITIONS[rounding](*map(int, v)) for v in np.stack([x, mantissa, exponent], 1)[some]
    ]
    assert wide[some].tolist() == wanted


def test_ties_go_away_from_zero():
    x = np.arange(-9, 10, dtype=np.int32)
    half = DOUBLE.by(NUMPY, x * 2, 0.25)
    assert half.tolist() == [int(math.copysign(math.floor(abs(v) / 2 + 0.5), v)) for v in x]


@given(
    st.floats(2.0**-38, 2.0**28, width=32),
    st.sampled_from([1, -1]),
    st.lists(st.integers(-INT32, INT32 - 1), min_size=1),
)
def test_rescale_in_float32_is_that_of_floats(factor, sign, values):
    """Drawn sums, and those next to a tie of the result and of float32."""
    factor = np.float32(factor) * sign
    ties = np.clip((np.arange(-200, 200) + 0.5) / np.float64(factor), -INT32, INT32 - 1)
    powers = [n + d for k in (24, 25, 30) for n in (2**k, -(2**k)) for d in (-3, -1, 0, 1, 3)]
    x = np.array([*values, *np.rint(ties), *powers, -INT32, INT32 - 1]).astype(np.int32)
    wanted = np.rint(x.astype(np.float32) * factor).astype(np.float64)
    got = Rescaling("float32").by(NUMPY, x, float(factor))
    assert got.tolist() == np.clip(wanted, 1 - INT32, INT32 - 1).tolist()


@pytest.mark.parametrize("bad", [math.inf, math.nan, 2.0**31])
def test_factors_that_have_no_mantissa(bad):
    with pytest.raises(FormatError, match="rescale factor"):
        multiplier(np.array(bad))


def _edge_values() -> np.ndarray:
    small = np.arange(-40, 41)
    ends = [-INT32, INT32 - 1, 2**30, -(2**30), 2**30 - 1, 12345678]
    return np.concatenate([small, ends]).astype(np.int32)


def test_ties_go_up_where_it_rounds_once():
    x = np.arange(-9, 10, dtype=np.int32)
    assert SINGLE.by(NUMPY, x * 2, 0.25).tolist() == [math.floor(v / 2 + 0.5) for v in x]


def _rescaled(way):
    return lambda ops, x, mantissa, left, right: way.rescale(ops, x, mantissa, (left, right))


def _normal(center):
    return lambda ops, x: unit_rows(ops, x, 0.03, 1e-5, center=center, axis=1)


def _wide(ops, x):
    """Rows of which the mean is rounded."""
    return unit_rows(ops, x, 1e-4, 1e-5, center=True, axis=1, limits=(-(1 << 26), 1 << 26))


@pytest.mark.parametrize("runner", RUNNERS)
def test_equal_bits_everywhere(runner):
    x = _edge_values()
    mantissa, exponent = multiplier(np.array(FACTORS))
    grid = np.repeat(x[:, None], len(FACTORS), 1)
    parts = [
        np.broadcast_to(v, grid.shape).copy()
        for v in (mantissa, np.maximum(exponent, 0), np.maximum(-exponent, 0))
    ]
    rng = np.random.default_rng(0)
    codes = rng.integers(-255, 256, (5, 24)).astype(np.int64)
    codes[1], codes[2, 3:] = 0, 0
    out = Output(1 / 255, -128, -128, 127)
    squares = np.concatenate([np.arange(1, 50), (np.arange(1, 40) ** 12) % 2**62 + 1])
    cases = [
        *(Case(_rescaled(way), [grid, *parts]) for way in (*WAYS, Rescaling("float32"))),
        Case(lambda ops, v: root(ops, v), [squares.astype(np.int64)]),
        Case(lambda ops, v: softmax(ops, v, 0.07, 1, out), [codes]),
        Case(lambda ops, v: softmax(ops, v, 0.0007, 1, out), [codes]),
        Case(lambda ops, v, w: ratio(ops, v, w, 20), [codes, codes[::-1].copy()]),
        Case(_wide, [codes << 8]),
        Case(_normal(True), [codes]),
        Case(_normal(False), [codes]),
    ]
    check(cases, runner)


@given(st.integers(1, 2**62 - 1), st.integers(1, 2**31 - 1))
def test_root_is_exact(x, r):
    values = [x, r * r, r * r - 1 or 1, min(r * r + 1, 2**62 - 1)]
    got = root(NUMPY, np.array(values, np.int64))
    assert got.tolist() == [math.isqrt(v) for v in values]


@pytest.mark.parametrize(("step", "units"), [(2e-5, 1.5), (0.002, 1.5), (0.05, 0.5), (0.7, 0.5)])
@pytest.mark.parametrize("n", [2, 12, 500])
@pytest.mark.parametrize("bits", [8, 16])
def test_softmax_within_its_bound(step, units, n, bits):
    """Every pair of codes (n = 2, 8 bits), else rows of random ones."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if n == 2 and bits == 8:
        a, b = np.meshgrid(np.arange(256), np.arange(256))
        x = np.stack([a.ravel(), b.ravel()], 1).astype(np.int64)
    else:
        x = np.random.default_rng(n).integers(low, high + 1, (64, n)).astype(np.int64)
        x[0, 0] = -(1 << 30)  # masked
    real = step * x
    e = np.exp(real - real.max(1, keepdims=True))
    exact = e / e.sum(1, keepdims=True)
    out = Output(float(exact.max()) / (high - low), low, low, high)
    k = 30 - math.ceil(math.log2(n))
    bound = 0.5 + ((2 * units * (n + 1) + 2) * 2.0 ** -(k + 1) + 2.0**-22) / out.scale
    steps = softmax(NUMPY, x, step, 1, out).astype(np.float64) - low
    assert np.abs(steps - exact / out.scale).max() <= bound


WIDE = np.arange(-(2**15), 2**15) * 2.0**-12  # what 16-bit codes of [-8, 8) stand for
FUNCTIONS = {
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "exp": np.exp,
    "abs": np.abs,
    "step": lambda x: np.where(x > 0.3, 5.0, -1.0),
}
OUTPUTS = {8: (255, -128, 127, -3), 16: (65535, -(2**15), 2**15 - 1, 77)}


@pytest.mark.parametrize("bits", OUTPUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_tables_of_all_wide_codes(name, bits):
    """Within one step of the function, rounded, for each of 65,536 codes; whole where it jumps."""
    count, low, high, zero = OUTPUTS[bits]
    y = FUNCTIONS[name](WIDE)
    out = Output((y.max() - y.min()) / count, zero, low, high)
    index = np.arange(len(WIDE), dtype=np.int32)
    got = tabulated(NUMPY, index, y / out.scale, out).astype(np.int64)
    want = np.clip(np.rint(y / out.scale) + zero, low, high)
    error = np.abs(got - want).max()
    assert (segments(y / out.scale, out) == 0) == (name == "step")
    assert error == 0 if name == "step" else error <= 1
    assert np.array_equal(tabulated(NUMPY, index[:256], y[:256] / out.scale, out), want[:256])


@pytest.mark.parametrize("runner", RUNNERS)
def test_tables_have_equal_bits(runner):
    """Also on IREE; the ends of the range, and codes on both sides of a knot."""
    near = np.arange(-3, 4)[:, None] + np.arange(0, 2**16 + 1, 2**12)
    index = np.unique(np.clip(near, 0, 2**16 - 1)).astype(np.int32)
    cases = []
    for name, bits in (("gelu", 16), ("tanh", 8), ("step", 8)):
        count, low, high, zero = OUTPUTS[bits]
        y = FUNCTIONS[name](WIDE)
        out = Output((y.max() - y.min()) / count, zero, low, high)
        steps = y / out.scale
        cases.append(Case(lambda ops, i, s=steps, o=out: tabulated(ops, i, s, o), (index,)))
    check(cases, runner)


@pytest.mark.parametrize("step", [1e-5, 0.003, 0.04])
def test_exponentials_of_every_code(step):
    """Half a unit from one table, 1.5 from two; 0 far away."""
    d = np.concatenate([np.arange(1 << 16), [1 << 24, 1 << 31]]).astype(np.int64)
    got = exponentials(NUMPY, d, step, 128)
    want = 2.0 ** exponential_bits(128) * np.exp(-step * d)
    two = 24 * math.log(2) / step > 1 << 10
    assert np.abs(got - want).max() <= (1.5 if two else 0.5)
    assert got[-1] == 0


@given(st.integers(-(2**31), 2**31), st.integers(-(2**17), 2**17), st.integers(0, 29))
def test_ratio(a, b, bits):
    (got,) = ratio(NUMPY, np.array([a], np.int64), np.array([b], np.int64), bits)
    end = 2**31 - 1
    if b == 0:
        assert got == (end if a > 0 else -end if a < 0 else 0)
        return
    exact = abs(a) * 2**bits
    size = min((2 * exact + abs(b)) // (2 * abs(b)), end)  # ties away from zero
    assert got == (size if (a < 0) == (b < 0) else -size)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(("n", "epsilon"), [(2, 1e-12), (17, 1e-5), (768, 1e-6)])
def test_rows_within_their_bound(center, n, epsilon):
    """Three units of 2^-30, and half a unit of the rounded epsilon."""
    check_rows(center, n, epsilon, 255, 0.0)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize(("n", "bits"), [(2, 16), (768, 16), (4096, 16), (4096, 20)])
def test_rows_of_wide_codes_within_their_bound(center, n, bits):
    """With a mean that is rounded to 2^-(f+1) of a code."""
    largest = (1 << bits) - 1
    room = 2**63 // (n * (2 * largest) ** 2)
    f = (room.bit_length() - 1) // 2
    check_rows(center, n, 1e-6, largest, 0.0 if n * n <= room else 2.0 ** -(f + 1))


def check_rows(center, n, epsilon, largest, rounded):
    rng = np.random.default_rng(n)
    x = rng.integers(-largest, largest + 1, (200, n)) >> rng.integers(0, 8, (200, 1))
    x[0], x[1, 1:] = 7, 0
    step = 0.013
    u = step * (x - x.mean(1, keepdims=True) if center else x)
    square = (u**2).sum(1, keepdims=True) + n * epsilon
    off = step * rounded if center else 0.0  # of every u of a row, by the mean
    unit = step * (2 * rounded or 1 / n) if center else step
    # epsilon in integers is right to half a unit, and at least one
    slack = np.maximum(0.5, np.maximum(0, 1 - n * epsilon / unit**2)) * unit**2
    low = (np.abs(u) - off) / np.sqrt(square + slack + n * off**2)
    high = (np.abs(u) + off) / np.sqrt(np.maximum(square - slack, 1e-300))
    bounds = (-largest, largest)
    got = unit_rows(NUMPY, x.astype(np.int64), step, epsilon, center=center, axis=1, limits=bounds)
    size = np.abs(got) / 2.0**30
    assert (got * np.round(u, 9) >= 0)[np.abs(u) > off].all()
    assert (size >= low - 3 * 2.0**-30).all()
    safe = (square - slack > 0)[:, 0]
    assert (size[safe] <= high[safe] + 3 * 2.0**-30).all()


def test_factors_that_are_too_large_to_round_once():
    with pytest.raises(FormatError, match="too large for how it rounds"):
        SINGLE.split(np.array(2.0**29))
