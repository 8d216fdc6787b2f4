"""Small floats against ml_dtypes: every code, and rounding of many numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from jq.formats import NUMPY, e8m0
from jq.formats.minifloat import E2M1, E2M3, E3M2, E4M3FN, E5M2, Minifloat
from tests.support.programs import Case, assert_same_bits, check

ORACLES = {
    "e4m3fn": (E4M3FN, ml_dtypes.float8_e4m3fn),
    "e5m2": (E5M2, ml_dtypes.float8_e5m2),
    "e3m2": (E3M2, ml_dtypes.float6_e3m2fn),
    "e2m3": (E2M3, ml_dtypes.float6_e2m3fn),
    "e2m1": (E2M1, ml_dtypes.float4_e2m1fn),
}
EVERY = pytest.mark.parametrize(("spec", "oracle"), ORACLES.values(), ids=ORACLES)
BYTES = np.arange(256, dtype=np.uint8)


def numbers(spec: Minifloat, oracle: type) -> np.ndarray:
    """All values, the middles between them, both neighbours of those, and random ones."""
    codes = np.arange(2**spec.bits, dtype=np.uint8)
    exact = np.sort(codes.view(oracle).astype(np.float32))
    exact = exact[np.isfinite(exact)]
    middle = (exact[1:] + exact[:-1]) / 2
    around = [np.nextafter(middle, np.float32(way)) for way in (-np.inf, np.inf)]
    rng = np.random.default_rng(0)
    spread = rng.standard_normal(20_000) * 10.0 ** rng.uniform(-8, 8, 20_000)
    ends = np.array([0.0, -0.0, 1e-45, -1e-45, 2.0**-126, 3e38, -3e38, np.inf, -np.inf])
    huge = np.ldexp(1.5, np.arange(90, 128))
    with np.errstate(over="ignore"):
        return np.concatenate([exact, middle, *around, spread, ends, huge]).astype(np.float32)


@EVERY
def test_every_code_decodes(spec: Minifloat, oracle: type) -> None:
    codes = np.arange(2**spec.bits, dtype=np.uint8)
    assert_same_bits(spec.decode(NUMPY, codes.view(np.int8)), codes.view(oracle).astype(np.float32))


@EVERY
def test_limits(spec: Minifloat, oracle: type) -> None:
    assert spec.largest == float(ml_dtypes.finfo(oracle).max)
    assert spec.bits == ml_dtypes.finfo(oracle).bits


@EVERY
def test_rounding_to_even(spec: Minifloat, oracle: type) -> None:
    x = numbers(spec, oracle)
    want = np.clip(x, -spec.largest, spec.largest).astype(oracle).view(np.int8)
    assert_same_bits(spec.encode(x), want)


@EVERY
def test_rounding_away_from_zero(spec: Minifloat, oracle: type) -> None:
    """Ties go up in magnitude; everything else rounds as above."""
    x = numbers(spec, oracle)
    values = np.sort(
        np.unique(spec.decode(NUMPY, np.arange(spec.largest_code + 1).astype(np.int8)))
    )
    middle = (values[1:] + values[:-1]) / 2
    magnitude = values[np.searchsorted(middle, np.abs(x), side="right")]
    got = spec.decode(NUMPY, spec.encode(x, "nearest"))
    assert_same_bits(got, np.copysign(magnitude, x))


def test_every_power_of_two_decodes() -> None:
    want = BYTES.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    assert_same_bits(e8m0.decode(NUMPY, BYTES.view(np.int8)), want)


@pytest.mark.parametrize("runner", ["interpreter", "xla", "iree"])
def test_every_code_decodes_in_programs(runner: str) -> None:
    """Also where 8-bit float types themselves are wrong: 0xFF is -480 in IREE 3.13."""
    every = BYTES.view(np.int8)
    cases = [Case(spec.decode, [every]) for spec, _ in ORACLES.values() if spec.bits == 8]
    cases += [Case(spec.decode, [every[: 2**spec.bits]]) for spec in (E3M2, E2M3, E2M1)]
    # Not the smallest scale in XLA, whose arithmetic flushes it; the bits are right.
    cases.append(Case(lambda o, x: o.bitcast(e8m0.decode(o, x), np.int32), [every]))
    check(cases, runner)
