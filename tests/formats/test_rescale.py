"""Sums to codes: against exact fractions, and with the same bits on every runner."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jq.formats import NUMPY
from jq.formats.rescale import MAX_FACTOR, MAX_FRACTION, Rescale, ResidualScale
from tests.support.programs import RUNNERS, Case, check

RNG = np.random.default_rng(0)
RATIOS = [1e-7, 2.0**-16, 0.4, 0.99999, 1.0, 1.7, 3.99999, 50.0, 60000.0]


def half_even(x: Fraction) -> int:
    return round(x)  # Python's own


@given(st.floats(2.0**-20, 60000.0), st.integers(-128, 127))
def test_a_residual_has_sixteen_bits(ratio, zero):
    scale = ResidualScale.of(ratio, zero)
    assert 0 <= scale.factor <= MAX_FACTOR and scale.fraction <= MAX_FRACTION
    error = abs(scale.factor * 2.0**-scale.fraction - ratio)
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
    unit = np.float32(multiplier * 2.0**scale.fraction)
    total = np.array(totals, np.int32)
    found = Rescale(zero, residual=scale).codes(
        NUMPY, total, np.full(len(totals), unit, np.float32), codes
    )
    for t, r, got in zip(total, codes, found, strict=True):
        first = half_even(Fraction(float(np.float32(t) * unit)))
        whole = first + (int(r) - residual_zero) * scale.factor
        want = half_even(Fraction(whole, 1 << scale.fraction)) + zero
        assert got == min(max(want, -128), 127)


def cases() -> list[Case]:
    found = []
    for ratio in RATIOS:
        total = RNG.integers(-(2**31), 2**31, 4000, dtype=np.int64) >> RNG.integers(0, 31, 4000)
        codes = RNG.integers(-128, 128, 4000, dtype=np.int8)
        scale = ResidualScale.of(ratio, int(RNG.integers(-128, 128)))
        bounded = ResidualScale(scale.zero_point, scale.factor, scale.fraction, 0.0, 90.0)
        steps = (RNG.random(4000) * 2.0 ** -RNG.integers(1, 30, 4000)).astype(np.float32)
        for residual in (scale, bounded):
            rescale = Rescale(-3, -120, 100, residual)
            unit = steps * np.float32(2.0**residual.fraction)
            arrays = [total.astype(np.int32), unit, codes]
            found.append(Case(lambda o, t, m, r, s=rescale: s.codes(o, t, m, r), arrays))
    ties = [np.arange(-300, 300, dtype=np.int32), np.full(600, 0.5, np.float32)]
    found.append(Case(lambda o, t, m: Rescale(1).codes(o, t, m), ties))
    return found


@pytest.mark.parametrize("runner", RUNNERS)
def test_bits_do_not_depend_on_the_compiler(runner):
    check(cases(), runner)
