"""Formats of blocks at run time: the codes of `encode`, integers that stand for them, both ends."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from jq.formats import NUMPY, Encoding, Format, get_format
from jq.formats.base import unpacked
from jq.formats.blocks import expand
from jq.formats.scaled import Scaled

NAMES = [n for n, f in Format.registry.items() if isinstance(f, Scaled) and f.at_run_time]
MX = {
    "mxfp8_e4m3": (ml_dtypes.float8_e4m3fn, 8, 448.0),
    "mxfp8_e5m2": (ml_dtypes.float8_e5m2, 15, 57344.0),
    "mxfp4": (ml_dtypes.float4_e2m1fn, 2, 6.0),
}
SIZES = (1.0, 1e-30, 1e-37, 3e-38, 1e30, 1e38)


def drawn(size):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 96)) * np.exp(2 * rng.standard_normal((5, 96))) * size
    x = x.clip(-3e38, 3e38).astype(np.float32)
    x[2, 32:64] = 0
    return x


def blocks(name, shape):
    return unpacked(Encoding(name, shape, (1, 16 if name == "nvfp4" else 32)))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_codes_and_scales_are_those_of_encode(name, size):
    x, fmt = drawn(size), get_format(name)
    enc = blocks(name, x.shape)
    want, got = fmt.encode(x, enc), fmt.quantize_dynamic(NUMPY, x, enc)
    assert list(got) == list(fmt.storage(enc)) == list(want)
    for part in want:
        np.testing.assert_array_equal(got[part], want[part])


@pytest.mark.parametrize("name", [n for n in NAMES if get_format(n).integer_bits])
def test_integers_are_the_numbers(name):
    x, fmt = drawn(1.0), get_format(name)
    enc = blocks(name, x.shape)
    parts = fmt.encode(x, enc)
    whole = fmt.integers(NUMPY, parts, enc)
    assert whole.codes.dtype == np.int8
    got = whole.codes.astype(np.float32) * expand(NUMPY, whole.scale, enc)
    np.testing.assert_array_equal(got, fmt.to_numpy(parts, enc))


@pytest.mark.parametrize("name", [n for n in NAMES if get_format(n).idempotent])
def test_the_second_time_changes_nothing(name):
    fmt = get_format(name)
    for size in SIZES:
        enc = blocks(name, (5, 96))
        once = fmt.quantize_dynamic(NUMPY, drawn(size), enc)
        twice = fmt.quantize_dynamic(NUMPY, fmt.decode(NUMPY, once, enc), enc)
        for part in once:
            np.testing.assert_array_equal(twice[part], once[part])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_block_stays_visible(name, value):
    x, fmt = drawn(1.0), get_format(name)
    x[0, 40] = value
    enc = blocks(name, x.shape)
    got = fmt.fake_quantize(NUMPY, x, enc)
    assert np.isnan(got[0, 40])
    assert np.isfinite(got[1:]).all() or name == "nvfp4"  # whose scale is of the whole tensor


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", MX)
def test_both_ends_of_the_range_on_a_device(name, size):
    """IREE takes subnormal numbers for 0; scales of 2^-127 must not vanish for that."""
    import jq

    element, top, largest = MX[name]
    x = drawn(size)
    x[np.abs(x) < 2.0**-126] = 0  # as the device reads them
    cut = x.reshape(5, 3, 32)
    most = np.abs(cut).max(2, keepdims=True)
    e = np.floor(np.log2(np.where(most > 0, most, 2.0**-149).astype(np.float64))) - top
    steps = (cut / 2.0 ** np.maximum(e, -127)).clip(-largest, largest)
    want = steps.astype(np.float32).astype(element).astype(np.float64) * 2.0 ** np.maximum(e, -127)
    want = want.reshape(x.shape)
    compiled = jq.compile(jq.Model(lambda p, x: jq.mx_fake_quant(x, name), {}, (x,)), "float")
    got = np.asarray(compiled(x), np.float64)
    normal = (np.abs(want) >= 2.0**-126) | (want == 0)
    np.testing.assert_array_equal(got[normal], want[normal])
