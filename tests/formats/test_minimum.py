"""Scale and minimum, and tables of a tensor's own: NumPy's formula, on every runner."""

from __future__ import annotations

from itertools import product

import jax
import numpy as np
import pytest

from jq.base.errors import FormatError
from jq.formats import NUMPY, Encoding, get_format
from jq.formats.imported import TABLE
from jq.frontends.tracing.fake_quant import fake_quant_as
from tests.formats.encodings import values
from tests.formats.test_decode import decode_case
from tests.support.programs import check

SHAPES = (((64, 33), (32, 1)), ((7, 257), (1, 32)), ((3, 70, 9), (1, 0, 1)))
MINIMA = ("uint2_min", "uint4_min", "uint8_min")
ZEROS = ("uint2_zero", "uint3_zero", "uint4_zero")


def encodings(name: str) -> list[Encoding]:
    types = ("float16", "bfloat16", "float32")
    cases = zip(SHAPES, types, strict=True)
    return [Encoding(name, *case, scale_type=kind) for case, kind in cases]


@pytest.mark.parametrize(
    ("name", "runner"), [*product(MINIMA + ZEROS, ("iree", "interpreter", "xla"))]
)
def test_every_runner_has_the_bits_of_numpy(name: str, runner: str) -> None:
    check([decode_case(e, constant=i == 0) for i, e in enumerate(encodings(name))], runner)


@pytest.mark.parametrize("name", MINIMA)
def test_decoding_is_the_formula(name: str) -> None:
    """With codes that are unpacked by hand; all numbers lie within half a step of what they were,
    but for what the scale has lost in float16, which the largest code multiplies."""
    fmt = get_format(name)
    enc, x = encodings(name)[0], np.random.default_rng(0).normal(1, 1, (64, 33)).astype(np.float32)
    parts = fmt.encode(x, enc)
    per = 8 // fmt.bits
    fields = [
        (parts["codes"].view(np.uint8) >> (fmt.bits * i)) & (2**fmt.bits - 1) for i in range(per)
    ]
    codes = np.stack(fields, -1).reshape(64, -1)[:, :33].astype(np.float32)
    codes = codes if per > 1 else codes.astype(np.uint8).view(np.int8).astype(np.float32) + 128
    scale, minimum = (parts[k].astype(np.float32).repeat(32, 0) for k in ("scale", "minimum"))
    decoded = fmt.to_numpy(parts, enc)
    np.testing.assert_array_equal(decoded, codes * scale + minimum)
    lost = 2.0**-11 * (2**fmt.bits * scale + np.abs(minimum))
    assert (np.abs(decoded - x) <= scale / 2 + lost).all()
    found = fmt.integers(NUMPY, parts, enc)
    zero = 0 if found.zero_point is None else found.zero_point.repeat(32, 0)
    np.testing.assert_array_equal(found.codes - zero, codes)


@pytest.mark.parametrize("name", ZEROS)
def test_zero_points_between_codes(name: str) -> None:
    """Numbers of a block lie within half a step, and the eighth bit's rounding of the zero point;
    zeros below and above all numbers are kept apart from codes."""
    fmt = get_format(name)
    enc, x = encodings(name)[0], np.random.default_rng(0).normal(1, 1, (64, 33)).astype(np.float32)
    parts = fmt.encode(x, enc)
    assert {k: (a.shape, a.dtype) for k, a in parts.items()} == fmt.storage(enc)
    bits = np.unpackbits(parts["codes"].view(np.uint8), axis=1, bitorder="little")
    fields = bits[:, : 33 * fmt.bits].reshape(64, 33, fmt.bits)
    codes = fields.astype(np.float32) @ 2.0 ** np.arange(fmt.bits, dtype=np.float32)
    scale, lift = (parts[k].astype(np.float32).repeat(32, 0) for k in ("scale", "minimum"))
    unit = np.float32(2.0 ** (fmt.bits - 7))
    decoded = fmt.to_numpy(parts, enc)
    np.testing.assert_array_equal(decoded, (codes + lift * unit) * scale)
    lost = 2.0**-11 * 2**fmt.bits * scale + unit / 2 * scale
    assert (np.abs(decoded - x) <= scale / 2 + lost).all()
    assert (lift * unit % 1 != 0).any()  # no integers
    found = fmt.integers(NUMPY, parts, enc)
    np.testing.assert_array_equal(found.codes, codes)
    np.testing.assert_array_equal(np.repeat(found.offset, 32, 0), lift * unit * scale)


@pytest.mark.parametrize("name", ZEROS)
def test_fake_quantization_gives_what_is_stored(name: str) -> None:
    for enc in encodings(name):
        x = values(enc.shape)
        x[:3] = 0
        fmt = get_format(name)
        stored = fmt.to_numpy(fmt.encode(x, enc), enc)
        np.testing.assert_array_equal(fmt.fake_quantize(NUMPY, x, enc), stored)


@pytest.mark.parametrize("name", ZEROS)
def test_a_compiled_fake_quantization_gives_what_is_stored(name: str) -> None:
    """Also with scales of 24 bits, where a compiler that joins a product with a sum rounds less."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((256, 512)) * 10.0 ** rng.integers(-3, 3, (256, 1))
    enc, fmt = Encoding(name, x.shape, (32, 1)), get_format(name)
    x = x.astype(np.float32)
    found = jax.jit(lambda x: fake_quant_as(enc, x))(x)
    np.testing.assert_array_equal(found, fmt.to_numpy(fmt.encode(x, enc), enc))


def test_large_tensors_are_encoded_in_pieces() -> None:
    x = values((3000, 1200))
    fmt, enc = get_format("uint4_min"), Encoding("uint4_min", x.shape, (0, 1))
    whole, some = (
        fmt.encode(x, enc),
        fmt.encode(x[:, :40], Encoding("uint4_min", (3000, 40), (0, 1))),
    )
    np.testing.assert_array_equal(whole["codes"][:, :20], some["codes"])
    np.testing.assert_array_equal(whole["minimum"][:, :40], some["minimum"])


def test_a_table_in_any_order() -> None:
    numbers = np.array([3, -1, 0.1, -7, 2, 5], np.float32)
    fmt = get_format("codebook4")
    enc = Encoding("codebook4", (4, 6), (1, 0), options=((TABLE, fmt.written(numbers)),))
    x = numbers * np.array([[1], [0.5], [-1e3], [2]], np.float32)[:, :, None].reshape(4, 1)
    parts = fmt.encode(x, enc)
    decoded = fmt.to_numpy(parts, enc)
    np.testing.assert_allclose(decoded[[0, 1, 3]], x[[0, 1, 3]], rtol=2.0**-22)
    check([decode_case(enc, constant=False)], "interpreter")
    for text in ("1,2", "a", ",".join(["nan"] * 16)):
        with pytest.raises(FormatError, match="the option `table` is no 16 numbers"):
            fmt.check(Encoding("codebook4", (4, 6), (1, 0), options=((TABLE, text),)))
