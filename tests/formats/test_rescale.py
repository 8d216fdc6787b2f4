"""Sums to codes: against exact fractions, and with the same bits on every runner."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jq.formats import NUMPY
from jq.formats.integer_functions import Output
from jq.formats.rescale import MAX_FACTOR, MAX_FRACTION, Rescale, ResidualScale
from tests.support.programs import RUNNERS, Case, check

RNG = np.random.default_rng(0)
RATIOS = [1e-7, 2.0**-16, 0.4, 0.99999, 1.0, 1.7, 3.99999, 50.0, 60000.0]


def half_even(x: Fraction) -> int:
    return round(x)  # Python's own


@given(st.floats(2.0**-20, 60000.0), st.integers(-128, 127))
def test_a_residual_has_sixteen_bits(ratio, zero):
    scale = ResidualScale.of(ratio, zero)
    assert 0 <= scale.factor <= MAX_FACTOR and scale.unit >= 2.0**-MAX_FRACTION
    error = abs(scale.factor * scale.unit - ratio)
    assert error <= max(ratio * 2.0**-16, 2.0 ** -(MAX_FRACTION + 1))


@given(
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20),
    st.floats(2.0**-40, 0.5, width=32),
    st.sampled_from(RATIOS),
    st.integers(-128, 127),
    st.integers(-128, 127),
)
def test_codes_are_those_of_exact_sums(totals, multiplier, ratio, zero, residual_zero):
    scale = ResidualScale.of(ratio, residual_zero)
    codes = RNG.integers(-128, 128, len(totals), dtype=np.int8)
    unit = np.float32(multiplier / scale.unit)
    total = np.array(totals, np.int32)
    found = Rescale(zero, residual=scale).codes(
        NUMPY, total, np.full(len(totals), unit, np.float32), codes
    )
    for t, r, got in zip(total, codes, found, strict=True):
        first = half_even(Fraction(float(np.float32(t) * unit)))
        whole = first + (int(r) - residual_zero) * scale.factor
        want = half_even(whole * Fraction(scale.unit)) + zero
        assert got == min(max(want, -128), 127)


SCALES = st.floats(2.0**-12, 4.0, width=32)
ZEROS = st.sampled_from([-128, -7, 0, 55])


@given(SCALES, SCALES, SCALES, ZEROS, ZEROS, ZEROS, st.sampled_from([-128, -7, 3]))
def test_codes_that_are_added_as_floats(a, b, c, za, zb, zc, low):
    first, added = Output(a, za, -128, 127), Output(b, zb, -128, 127)
    out = Output(c, zc, low, 127)
    scale = ResidualScale.between(first, added, out)
    if scale is None:
        return  # what is right is found in `test_all_usual_scales_are_found`
    one, other = (v.ravel() for v in np.mgrid[-128:128, -128:128])
    rescale = Rescale(zc, low, 127, scale)
    ones = np.ones(one.size, np.float32)
    got = rescale.codes(NUMPY, (one - za).astype(np.int32), ones, other.astype(np.int8))
    real = (one - za).astype(np.float32) * np.float32(a)
    real = real + (other - zb).astype(np.float32) * np.float32(b)
    wanted = np.clip(np.rint(real / np.float32(c)) + zc, low, 127)
    np.testing.assert_array_equal(got, wanted)


def test_all_usual_scales_are_found():
    rng = np.random.default_rng(1)
    found = [
        ResidualScale.between(
            *(Output(float(s), int(z), -128, 127) for s, z in zip(scales, zeros, strict=True))
        )
        for scales, zeros in zip(
            np.exp(rng.normal(-4, 1, (200, 3))).astype(np.float32),
            rng.integers(-128, 128, (200, 3)),
            strict=True,
        )
    ]
    assert sum(scale is None for scale in found) < 5


def cases() -> list[Case]:
    found = []
    for ratio in RATIOS:
        total = RNG.integers(-(2**31), 2**31, 4000, dtype=np.int64) >> RNG.integers(0, 31, 4000)
        codes = RNG.integers(-128, 128, 4000, dtype=np.int8)
        scale = ResidualScale.of(ratio, int(RNG.integers(-128, 128)))
        bounded = replace(scale, low=0.0, high=90.0)
        steps = (RNG.random(4000) * 2.0 ** -RNG.integers(1, 30, 4000)).astype(np.float32)
        for residual in (scale, bounded, replace(bounded, gain=1999)):
            rescale = Rescale(-3, -120, 100, residual)
            unit = steps / np.float32(residual.unit)
            arrays = [total.astype(np.int32), unit, codes]
            found.append(Case(lambda o, t, m, r, s=rescale: s.codes(o, t, m, r), arrays))
    ties = [np.arange(-300, 300, dtype=np.int32), np.full(600, 0.5, np.float32)]
    found.append(Case(lambda o, t, m: Rescale(1).codes(o, t, m), ties))
    return found


@pytest.mark.parametrize("runner", RUNNERS)
def test_bits_do_not_depend_on_the_compiler(runner):
    check(cases(), runner)
