"""Affine integers: parameters, ties, saturation, specials, and equal bits in programs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from jq.base.errors import FormatError
from jq.formats import NUMPY, Encoding, get_format
from tests.formats.encodings import AFFINE, SHAPES, encodings, values
from tests.support.programs import Case, check

FULL = (("divisor", "absmax/127.5"),)
HALF = (("divisor", "absmax/63"),)
UNPACKED = (("packing", "none"),)


def test_two_symmetric_divisors() -> None:
    x = np.array([-127.5, 63.5, 31.0], np.float32)
    fmt = get_format("int8")
    for options, divisor, codes in (((), 127, [-127, 63, 31]), (FULL, 127.5, [-128, 64, 31])):
        parts = fmt.encode(x, Encoding("int8", (3,), (0,), options=options))
        assert parts["scale"] == np.float32(127.5) / np.float32(divisor)
        np.testing.assert_array_equal(parts["codes"], codes)


def test_half_of_the_codes_are_two_digits() -> None:
    """`absmax/63`: of int16, |code| <= 2^14 - 1; 2 bits have no half."""
    x = np.array([-16383, 8191.5, 1.0, 0.5], np.float32)
    enc = Encoding("int16", (4,), (0,), options=HALF)
    parts = get_format("int16").encode(x, enc)
    assert parts["scale"] == 1
    np.testing.assert_array_equal(parts["codes"], [-16383, 8192, 1, 0])
    assert get_format("int16").limits(enc) == (-16383, 16383)
    eight = Encoding("int8", (2,), (0,), options=HALF)
    np.testing.assert_array_equal(
        get_format("int8").encode(np.array([-63, 31], np.float32), eight)["codes"], [-63, 31]
    )
    with pytest.raises(FormatError, match="divisor"):
        get_format("int2").check(Encoding("int2", (4,), (0,), options=HALF))


def test_asymmetric_parameters() -> None:
    """The range takes in 0, whose code is exact."""
    lo, hi = (
        np.array([[-1.0], [2.0], [-3.0]], np.float32),
        np.array([[3.0], [4.0], [-1.0]], np.float32),
    )
    signed, unsigned = (Encoding(n, (3, 5), (1, 0), "asymmetric") for n in ("int8", "uint8"))
    for enc in (signed, unsigned):
        scale, zero = get_format(enc.format).parameters(lo, hi, enc)
        np.testing.assert_array_equal(
            scale, np.array([[4], [4], [3]], np.float32) / np.float32(255)
        )
        np.testing.assert_array_equal(zero, [[-64], [-128], [127]])


@pytest.mark.parametrize("name", AFFINE)
def test_ties_go_to_the_even_code(name: str) -> None:
    """The zero point is added after rounding: an odd one does not move ties."""
    fmt = get_format(name)
    half = 1 << (fmt.bits - 1)
    x = np.arange(-2 * half, 2 * half + 1, dtype=np.float32)[: 4 * 256] / 2
    enc = Encoding(name, x.shape, (0,), "asymmetric")
    scale = np.ones(1, np.float32)
    for zero in (0, 1, -1):
        want = np.clip(np.round(x).astype(int) + zero, -half, half - 1)
        got = fmt.quantize(x, scale, np.array([zero], np.int32), enc)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", AFFINE)
def test_specials_in_static_quantization(name: str) -> None:
    """NaN becomes 0, infinities and large numbers saturate."""
    fmt = get_format(name)
    x = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 0], np.float32)
    for scheme, zero in (("symmetric", None), ("asymmetric", np.array([1], np.int32))):
        enc = Encoding(name, x.shape, (0,), scheme)
        low, high = fmt.limits(enc)
        at_zero = 0 if zero is None else 1
        want = [at_zero, high, low, high, low, at_zero]
        got = fmt.quantize(x, np.full(1, 0.5, np.float32), zero, enc)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_damaged_row_stays_damaged(bad: float) -> None:
    """Dynamic: the row of NaN or infinity decodes to NaN, the others are as without it."""
    x = values((4, 16))
    enc = Encoding("int8", x.shape, (1, 0))
    fmt = get_format("int8")
    clean = fmt.quantize_dynamic(NUMPY, x, enc)
    x = x.copy()
    x[1, 2] = bad
    got = fmt.quantize_dynamic(NUMPY, x, enc)
    decoded = fmt.dequantize(NUMPY, got["codes"], got["scale"], None, enc)
    assert np.isnan(decoded[1]).all()
    keep = [0, 2, 3]
    np.testing.assert_array_equal(got["codes"][keep], clean["codes"][keep])
    np.testing.assert_array_equal(got["scale"][keep], clean["scale"][keep])


@pytest.mark.parametrize("scheme", ["symmetric", "asymmetric"])
def test_a_zero_row_has_scale_one(scheme: str) -> None:
    x = np.zeros((2, 8), np.float32)
    x[1] = 1e-44  # subnormal: what a device may flush counts as zero everywhere
    enc = Encoding("int8", x.shape, (1, 0), scheme)
    got = get_format("int8").quantize_dynamic(NUMPY, x, enc)
    np.testing.assert_array_equal(got["scale"], np.ones((2, 1), np.float32))
    real = got["codes"].astype(int) - got.get("zero_point", 0)
    np.testing.assert_array_equal(real, np.zeros((2, 8)))


def test_small_scales_in_float16() -> None:
    """A scale that float16 would round to 0 becomes its smallest number."""
    x = np.array([[1e-7, -5e-8], [3e-7, 0]], np.float32)
    enc = Encoding("int8", x.shape, (1, 0), scale_type="float16")
    parts = get_format("int8").encode(x, enc)
    np.testing.assert_array_equal(parts["scale"], np.full((2, 1), 2.0**-24, np.float16))
    np.testing.assert_array_equal(parts["codes"], [[2, -1], [5, 0]])


@pytest.mark.parametrize("name", AFFINE)
def test_scalars(name: str) -> None:
    enc, fmt = Encoding(name, (), (), "asymmetric"), get_format(name)
    parts = fmt.encode(np.array(3.0, np.float32), enc)
    assert {k: (v.shape, v.dtype) for k, v in parts.items()} == fmt.storage(enc)
    np.testing.assert_allclose(fmt.decode(NUMPY, parts, enc), 3.0, rtol=1e-6)


def test_refusals() -> None:
    fmt = get_format("int8")
    for enc, reason in (
        (Encoding("int8", (4,), (0,), "affine"), "scheme"),
        (Encoding("int8", (4,), (0,), scale_type="int8"), "scale type"),
        (Encoding("int8", (4,), (0,), options=(("divisor", "128"),)), "divisor"),
        (Encoding("int8", (4,), (0,), options=(("rounding", "even"),)), "rounding"),
        (Encoding("int8", (4,), (0,), "asymmetric", options=FULL), "symmetric"),
        (Encoding("int8", (0, 4), (0, 1)), "empty"),
    ):
        with pytest.raises(FormatError, match=reason):
            fmt.check(enc)
    with pytest.raises(FormatError, match="float16"):
        fmt.encode(np.full(4, 1e8), Encoding("int8", (4,), (0,), scale_type="float16"))
    enc = Encoding("int8", (4,), (0,), scale_type="float16")
    with pytest.raises(FormatError, match="float32"):
        fmt.quantize_dynamic(NUMPY, np.ones(4, np.float32), enc)


def test_computed_codes_below_a_byte_are_not_packed() -> None:
    """Decoding takes the result of quantization in a program; a packed encoding is refused."""
    fmt, x = get_format("int4"), values((5, 7))
    packed = Encoding("int4", x.shape, (1, 0), "asymmetric")
    enc = Encoding("int4", x.shape, (1, 0), "asymmetric", options=UNPACKED)
    got = fmt.quantize_dynamic(NUMPY, x, enc)
    decoded = fmt.decode(NUMPY, got, enc)
    np.testing.assert_array_equal(decoded, fmt.decode(NUMPY, fmt.encode(x, packed), packed))
    assert fmt.storage(enc)["codes"] == (x.shape, np.dtype(np.int8))
    with pytest.raises(FormatError, match="packing=none"):
        fmt.quantize_dynamic(NUMPY, x, packed)
    with pytest.raises(FormatError, match="cannot lie"):
        fmt.decode(NUMPY, got, packed)


def static_case(enc: Encoding, x: np.ndarray) -> Case:
    fmt = get_format(enc.format)
    wide = x.astype(np.float32)
    lo = np.broadcast_to(wide.min() * np.float32(0.7), enc.grid)
    hi = np.broadcast_to(wide.max() * np.float32(0.8), enc.grid)
    scale, zero = fmt.parameters(lo, hi, enc)
    args = [x, scale.astype(np.float32), *([] if zero is None else [zero])]

    def quantize(ops, x, scale, zero=None):
        return fmt.quantize_static(ops, x, scale, zero, enc)

    return Case(quantize, args)


def dynamic_case(enc: Encoding, x: np.ndarray) -> Case:
    fmt = get_format(enc.format)
    return Case(lambda ops, x: list(fmt.quantize_dynamic(ops, x, enc).values()), [x])


def program_cases() -> list[Case]:
    """Per tensor, token, channel and block; float32, float16 and NaN."""
    cases = []
    for shape in SHAPES:
        lead = (1,) * (len(shape) - 1)
        for i, block in enumerate([(0,) * len(shape), (*lead, 0), (*lead, 32)]):
            scheme = ("symmetric", "asymmetric")[(i + len(cases) // 2) % 2]
            name = ("int8", "int4", "uint8", "int16")[len(cases) // 2 % 4]
            enc = Encoding(name, shape, block, scheme, options=UNPACKED)
            x = values(shape, i)
            cases += [static_case(enc, x), dynamic_case(enc, x)]
    x = values((7, 33))
    x[3, 4] = np.nan
    enc = Encoding("int8", x.shape, (1, 0), "asymmetric")
    return [*cases, dynamic_case(enc, x), dynamic_case(enc, values((7, 33)).astype(np.float16))]


@pytest.mark.parametrize("runner", ["interpreter", "xla", "iree"])
def test_same_bits_in_programs(runner: str) -> None:
    check(program_cases(), runner)


def test_bfloat16_inputs_in_programs() -> None:
    x = values((7, 33)).astype(ml_dtypes.bfloat16)
    enc = Encoding("int8", x.shape, (1, 0))
    check(
        [Case(lambda o, b: dynamic_case(enc, x).f(o, o.bitcast(b, x.dtype)), [x.view(np.int16)])],
        "iree",
    )


@pytest.mark.parametrize("name", AFFINE)
def test_stored_bytes(name: str) -> None:
    fmt = get_format(name)
    for enc in encodings(name):
        parts = fmt.encode(values(enc.shape), enc)
        together = 3 if fmt.bits == 3 else 1  # bytes that codes fill evenly
        row = np.ceil(enc.shape[-1] * fmt.bits / 8 / together) * together
        assert parts["codes"].nbytes == enc.shape[0] * int(np.prod(enc.shape[1:-1]) * row)
    if name == "int4":
        for scheme, most in (("symmetric", 0.57), ("asymmetric", 0.585)):
            enc = Encoding(name, (4096, 4096), (32, 1), scheme, "float16")
            assert fmt.stored_bytes(enc) / 4096**2 <= most
