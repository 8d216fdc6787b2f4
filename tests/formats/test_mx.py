"""MX formats against a slow definition of their own, in Python's floats and ml_dtypes."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from jq.base.errors import FormatError
from jq.formats import NUMPY, Encoding, get_format
from jq.formats.e8m0 import SCALE_ROUNDINGS

# Largest number and its exponent (OCP MX 1.0, table 1 and section 5.3), mantissa bits, oracle.
ELEMENTS = {
    "mxint8": (127 / 64, 0, 6, None),
    "mxfp8_e4m3": (448.0, 8, 3, ml_dtypes.float8_e4m3fn),
    "mxfp8_e5m2": (57344.0, 15, 2, ml_dtypes.float8_e5m2),
    "mxfp6_e3m2": (28.0, 4, 2, ml_dtypes.float6_e3m2fn),
    "mxfp6_e2m3": (7.5, 2, 3, ml_dtypes.float6_e2m3fn),
    "mxfp4": (6.0, 2, 1, ml_dtypes.float4_e2m1fn),
    "float4_e2m1fn": (6.0, 2, 1, ml_dtypes.float4_e2m1fn),
}
NAMES = pytest.mark.parametrize("name", ELEMENTS)


def shared_exponent(absmax: float, name: str, rounding: str) -> int:
    largest, emax, mantissa, _ = ELEMENTS[name]
    if absmax == 0:
        return -127
    fraction, exponent = math.frexp(absmax)  # fraction in [1/2, 1)
    floor = exponent - 1
    if rounding == "ceil":
        e = floor - emax + (fraction > 0.5)
    elif rounding == "rceil":
        e = next(k for k in range(floor - emax - 2, floor + 3) if largest * 2.0**k >= absmax)
    elif rounding == "even":
        rounded = math.floor(absmax / 2.0**floor * 2**mantissa + 0.5) / 2**mantissa
        e = floor - emax + (rounded >= 2)
    else:
        e = floor - emax
    return min(max(e, -127), 127)


def quantize_block(x: np.ndarray, name: str, rounding: str) -> np.ndarray:
    """A block of 32, rounded."""
    largest, _, mantissa, oracle = ELEMENTS[name]
    scale = 2.0 ** shared_exponent(float(np.abs(x).max()), name, rounding)
    steps = np.clip(x.astype(np.float64) / scale, -largest, largest)
    if oracle is None:
        return np.rint(steps * 2**mantissa) / 2**mantissa * scale
    return steps.astype(np.float32).astype(oracle).astype(np.float64) * scale


def blocks() -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 32)) * 2.0 ** rng.integers(-40, 40, (200, 1))
    x[0] = 0
    x[1, :] = 2.0 ** np.arange(-16, 16)  # exact powers of two
    for row, top in enumerate(
        [6, 7, 7.5, 28, 448, 480, 57344, 1.9921875, 1.99999988, 4, 3.9999998]
    ):
        x[2 + row] = np.minimum(np.abs(x[2 + row]), top)
        x[2 + row, 3] = -top
    return x.astype(np.float32)


@NAMES
@pytest.mark.parametrize("rounding", SCALE_ROUNDINGS)
def test_against_definition(name: str, rounding: str) -> None:
    x = blocks()
    fmt = get_format(name)
    enc = Encoding(name, x.shape, (1, 32), options=(("scale_rounding", rounding),))
    parts = fmt.encode(x, enc)
    exponents = [shared_exponent(float(np.abs(row).max()), name, rounding) for row in x]
    np.testing.assert_array_equal(parts["scale"].view(np.uint8)[:, 0], np.array(exponents) + 127)
    want = np.stack([quantize_block(row, name, rounding) for row in x])
    np.testing.assert_array_equal(fmt.decode(NUMPY, parts, enc), want.astype(np.float32))


@NAMES
def test_either_axis(name: str) -> None:
    """Blocks along another axis are those of the transpose."""
    fmt, x = get_format(name), blocks()[:64, :7]
    down = Encoding(name, x.shape, (32, 1))
    across = Encoding(name, x.T.shape, (1, 32))
    a = fmt.decode(NUMPY, fmt.encode(x, down), down)
    b = fmt.decode(NUMPY, fmt.encode(x.T.copy(), across), across)
    np.testing.assert_array_equal(a, b.T)


def test_scale_is_rounded_before_the_codes() -> None:
    """6 is largest: codes from the unrounded scale would make 5 of 5, not 4 or 6."""
    fmt = get_format("mxfp4")
    x = np.zeros((1, 32), np.float32)
    x[0, :4] = [7.9, 5.1, -2.6, 0.8]
    enc = Encoding("mxfp4", x.shape, (1, 32))
    decoded = fmt.decode(NUMPY, fmt.encode(x, enc), enc)
    np.testing.assert_array_equal(decoded[0, :5], [6, 6, -3, 1, 0])


def test_mxint8_has_no_minus_128() -> None:
    x = np.full((1, 32), -1.9999999, np.float32)
    codes = get_format("mxint8").encode(x, Encoding("mxint8", x.shape, (1, 32)))["codes"]
    assert codes.min() == -127


def test_ties_by_name() -> None:
    x = np.array([[4, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, -0.25] + [0] * 24], np.float32)
    fmt = get_format("mxfp4")
    for rounding, want in {
        "even": [4, 0, 1, 1, 2, 2, 4, 0],
        "nearest": [4, 0.5, 1, 1.5, 2, 3, 4, -0.5],
    }.items():
        enc = Encoding("mxfp4", x.shape, (1, 32), options=(("rounding", rounding),))
        np.testing.assert_array_equal(fmt.decode(NUMPY, fmt.encode(x, enc), enc)[0, :8], want)


def test_ties_of_mxint8() -> None:
    steps = [64, 0.5, 1.5, -2.5, 0.25] + [0] * 27
    for rounding, want in {"even": [64, 0, 2, -2, 0], "nearest": [64, 1, 2, -3, 0]}.items():
        enc = Encoding("mxint8", (1, 32), (1, 32), options=(("rounding", rounding),))
        codes = get_format("mxint8").encode(np.array([steps], np.float32) / 64, enc)["codes"]
        np.testing.assert_array_equal(codes[0, :5], want)


def test_a_scale_beyond_the_range_is_refused() -> None:
    x = np.full((1, 32), 3e38, np.float32)
    enc = Encoding("mxint8", x.shape, (1, 32), options=(("scale_rounding", "ceil"),))
    with pytest.raises(FormatError, match="beyond"):
        get_format("mxint8").encode(x, enc)


@pytest.mark.parametrize("block", [(32, 32), (1, 0), (0, 32), (1, 16), (1, 1)])
def test_other_blocks_are_refused(block: tuple[int, int]) -> None:
    with pytest.raises(FormatError, match="blocks of 32"):
        get_format("mxfp4").check(Encoding("mxfp4", (64, 64), block))


def test_nvfp4_against_definition() -> None:
    """Two levels of scale, the inner one a float8_e4m3fn number."""
    x = np.random.default_rng(0).standard_normal((64, 16)).astype(np.float32)
    x[3] = 0
    x[4] *= 1e-6
    tensor = np.float32(np.abs(x).max() / np.float32(6 * 448))
    ratio = np.abs(x).max(axis=1, keepdims=True) / np.float32(6) / tensor
    inner = np.maximum(ratio, 2.0**-9).astype(ml_dtypes.float8_e4m3fn)
    scale = inner.astype(np.float32) * tensor
    want = np.clip(x / scale, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32) * scale
    enc = Encoding("nvfp4", x.shape, (1, 16))
    fmt = get_format("nvfp4")
    parts = fmt.encode(x, enc)
    assert parts["tensor_scale"].item() == tensor
    np.testing.assert_array_equal(parts["scale"].view(np.uint8), inner.view(np.uint8))
    np.testing.assert_array_equal(fmt.decode(NUMPY, parts, enc), want)
