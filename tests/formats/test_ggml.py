"""ggml types against `gguf.quants`: the same bytes, the same float32 bits."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from jq.base.errors import FormatError
from jq.formats import NUMPY, Encoding, Format, get_format
from jq.formats.ggml import GgmlFormat

TYPES = sorted(n for n, f in Format.registry.items() if isinstance(f, GgmlFormat))
ENCODED_BY_GGUF = ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "ggml_mxfp4", "tq1_0", "tq2_0"]
# Shape in blocks along the blocked axis, and that axis.
LAYOUTS = [((1,), 0), ((1, 1), 1), ((2, 3), 0), ((7, 2), 1), ((3, 2, 5), 1), ((3, 2, 5), 0)]


def ggml_type(name: str) -> GGMLQuantizationType:
    return GGMLQuantizationType[name.removeprefix("ggml_").upper()]


def encoding(name: str, counts: tuple[int, ...] = (2, 3), axis: int = 0) -> Encoding:
    """`counts` is the shape with the blocked axis counted in blocks."""
    size = Format.registry[name].block
    shape = tuple(n * size if i == axis else n for i, n in enumerate(counts))
    return Encoding(name, shape, Format.registry[name].default_block(shape, axis))


def random_blocks(enc: Encoding, seed: int = 0) -> np.ndarray:
    """Any bytes are a valid tensor: denormal, infinite and NaN scales are among them."""
    shape, _ = get_format(enc.format).storage(enc)["blocks"]
    return np.random.default_rng(seed).integers(-128, 128, shape, np.int8)


def normal(enc: Encoding, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(enc.shape, np.float32)


def rows(x: np.ndarray, axis: int) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(x, axis, -1))


def decode(enc: Encoding, blocks: np.ndarray) -> np.ndarray:
    return get_format(enc.format).decode(NUMPY, {"blocks": blocks}, enc)


def reference(enc: Encoding, blocks: np.ndarray, axis: int) -> np.ndarray:
    flat = blocks.view(np.uint8).reshape(*blocks.shape[:-2], -1)
    with np.errstate(all="ignore"):
        return np.moveaxis(quants.dequantize(flat, ggml_type(enc.format)), -1, axis)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(("counts", "axis"), LAYOUTS)
def test_decodes_to_the_bits_of_gguf(name: str, counts: tuple[int, ...], axis: int) -> None:
    enc = encoding(name, counts, axis)
    blocks = random_blocks(enc)
    got, want = decode(enc, blocks), reference(enc, blocks, axis)
    assert got.shape == enc.shape
    assert got.dtype == np.float32
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    finite = ~np.isnan(want)
    np.testing.assert_array_equal(got[finite].view(np.int32), want[finite].view(np.int32))


@pytest.mark.parametrize("name", ENCODED_BY_GGUF)
@pytest.mark.parametrize(("counts", "axis"), LAYOUTS)
def test_encodes_to_the_bytes_of_gguf(name: str, counts: tuple[int, ...], axis: int) -> None:
    enc = encoding(name, counts, axis)
    x = normal(enc) * np.float32(0.02)
    got = get_format(name).encode(x, enc)["blocks"]
    want = quants.quantize(rows(x, axis), ggml_type(name))
    np.testing.assert_array_equal(got.view(np.uint8).ravel(), want.ravel())


@pytest.mark.parametrize("name", ENCODED_BY_GGUF)
def test_ties_and_extremes_are_those_of_gguf(name: str) -> None:
    """Halves, equal magnitudes of both signs, powers of two, and tiny and constant blocks."""
    rng = np.random.default_rng(1)
    values = np.stack(
        [
            rng.integers(-254, 255, 32) / 2,
            np.resize([3.0, -3.0, 1.5, -0.25], 32),
            2.0 ** rng.integers(-14, 14, 32) * rng.choice([-1, 1], 32),
            np.full(32, 1e-6),
            np.full(32, -7.0),
            np.zeros(32),
            np.arange(32) / 4,
        ]
    ).astype(np.float32)
    values = np.tile(values, Format.registry[name].block // 32)
    enc = encoding(name, (7, 1), 1)
    with np.errstate(all="ignore"):
        want = quants.quantize(values, ggml_type(name))
    got = get_format(name).encode(values, enc)["blocks"].view(np.uint8)
    np.testing.assert_array_equal(got.reshape(want.shape), want)


@pytest.mark.parametrize("name", ENCODED_BY_GGUF)
@pytest.mark.parametrize(("counts", "axis"), [((1025, 4), 1), ((3, 65, 33), 1), ((4000,), 0)])
def test_more_values_than_one_chunk(name: str, counts: tuple[int, ...], axis: int) -> None:
    enc = encoding(name, counts, axis)
    x = normal(enc)
    got = get_format(name).encode(x, enc)["blocks"].view(np.uint8)
    want = quants.quantize(rows(x, axis), ggml_type(name))
    np.testing.assert_array_equal(got.ravel(), want.ravel())


@pytest.mark.parametrize("name", TYPES)
def test_integer_parts_give_the_decoded_bits(name: str) -> None:
    enc = encoding(name, (2, 3, 5), 1)
    f = Format.registry[name]
    blocks = random_blocks(enc)
    codes, scale, offset = f.integer_parts(NUMPY, {"blocks": blocks}, enc)
    assert codes.dtype == np.int8
    assert codes.shape == enc.shape
    assert scale.shape == (2, enc.shape[1] // f.run, 5)
    with np.errstate(all="ignore"):
        value = codes.astype(np.float32) * np.repeat(scale, f.run, axis=1)
        if offset is not None:
            value += np.repeat(offset, f.run, axis=1)
    np.testing.assert_array_equal(value, decode(enc, blocks))


@pytest.mark.parametrize("name", TYPES)
def test_leading_slices_of_a_stack_are_leading_slices_of_its_blocks(name: str) -> None:
    stack, one = encoding(name, (3, 2, 5), 1), encoding(name, (2, 5), 0)
    blocks = random_blocks(stack)
    np.testing.assert_array_equal(decode(stack, blocks)[2], decode(one, blocks[2]))


@pytest.mark.parametrize("name", TYPES)
def test_stored_bytes(name: str) -> None:
    enc = encoding(name, (3, 5), 0)
    _, size = quants.GGML_QUANT_SIZES[ggml_type(name)]
    assert get_format(name).stored_bytes(enc) == 3 * 5 * size


def test_names_in_any_case() -> None:
    assert get_format("Q4_K") is get_format("q4_k")


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_refuses_what_is_not_finite(name: str, bad: float) -> None:
    enc = encoding(name)
    x = normal(enc)
    x[5, 1] = bad
    with pytest.raises(FormatError, match="NaN or inf"):
        get_format(name).encode(x, enc)


def test_refuses_a_scale_beyond_float16() -> None:
    x = np.full((1, 32), 1e8, np.float32)
    with pytest.raises(FormatError, match="beyond float16"):
        get_format("q4_0").encode(x, encoding("q4_0", (1, 1), 1))


@pytest.mark.parametrize("name", TYPES)
def test_refuses_other_encodings(name: str) -> None:
    f = Format.registry[name]
    size = f.block
    for enc, reason in [
        (Encoding(name, (size, size + 16), (1, size)), "no multiple"),
        (Encoding(name, (size, size), (size, size)), "needs block"),
        (Encoding(name, (size, size), (0, size)), "needs block"),
        (Encoding(name, (size, size), (1, 1)), "needs block"),
        (Encoding(name, (size, size), (1, 16)), "needs block"),
        (Encoding(name, (0, size), (1, size)), "empty"),
        (Encoding(name, (1, size), (1, size), scheme="asymmetric"), "scheme"),
        (Encoding(name, (1, size), (1, size), options=(("rounding", "even"),)), "option"),
    ]:
        with pytest.raises(FormatError, match=reason):
            f.check(enc)


@pytest.mark.parametrize("name", [n for n in TYPES if n[:2] in ("iq", "tq")])
def test_scales_at_the_ends_of_float16(name: str) -> None:
    """The least, the largest, negative, infinite and denormal scales, with every byte besides."""
    rng, fmt = np.random.default_rng(4), Format.registry[name]
    enc = encoding(name, (40, 8), 1)
    blocks = random_blocks(enc, 5).view(np.uint8)
    ends = np.array([0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00], "<u2")
    bits = rng.choice(ends, blocks.shape[:-1])
    if name == "iq1_m":  # its scale is in four parts
        word = blocks[..., 48:].reshape(*bits.shape, 4, 2).view("<u2")[..., 0] & 0xFFF
        word |= (bits[..., None] >> np.array([0, 4, 8, 12], "<u2") & 15) << 12
        blocks[..., 48:] = word.astype("<u2")[..., None].view(np.uint8).reshape(*bits.shape, 8)
    else:
        at = fmt.bytes - 2 if name.startswith("tq") else 0
        blocks[..., at : at + 2] = bits[..., None].astype("<u2").view(np.uint8)
    blocks = blocks.view(np.int8)
    with np.errstate(all="ignore"):
        got, want = decode(enc, blocks), reference(enc, blocks, 1)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    finite = ~np.isnan(want)
    np.testing.assert_array_equal(got[finite].view(np.int32), want[finite].view(np.int32))


GRIDS = ["iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_s", "iq1_m"]


@pytest.mark.parametrize("name", GRIDS)
def test_what_a_grid_holds_is_found_back(name: str) -> None:
    """Codes of a stored tensor are put back to the same bytes, whatever lay there."""
    fmt, enc = Format.registry[name], encoding(name, (3, 4), 1)
    parts = fmt.encode(normal(enc), enc)
    codes, *_ = fmt.integer_parts(NUMPY, parts, enc)
    other = fmt.with_codes(parts, np.full_like(codes, fmt.limits[1]), enc)
    assert not np.array_equal(other["blocks"], parts["blocks"])
    np.testing.assert_array_equal(fmt.with_codes(other, codes, enc)["blocks"], parts["blocks"])


@pytest.mark.parametrize("name", GRIDS)
def test_importance_moves_the_error(name: str) -> None:
    enc = encoding(name, (16, 2), 1)
    x, weights = normal(enc), np.ones(enc.shape[1], np.float32)
    weights[::5] = 50
    fmt = Format.registry[name]

    def error(parts: dict[str, np.ndarray]) -> float:
        return float((np.square(fmt.to_numpy(parts, enc) - x) * weights).sum())

    assert error(fmt.encode(x, enc, weights)) < 0.95 * error(fmt.encode(x, enc))


# dB on standard normal weights, to within 0.3 below (uniform noise theory and published figures).
@pytest.mark.parametrize(
    ("name", "decibel"), [("q8_0", 45.4), ("q4_1", 22.1), ("q4_0", 21.3), ("ggml_mxfp4", 18.9)]
)
def test_signal_to_quantization_noise(name: str, decibel: float) -> None:
    enc = encoding(name, (256, 4), 1)
    x = normal(enc).astype(np.float64)
    error = x - decode(enc, get_format(name).encode(x, enc)["blocks"])
    assert 10 * np.log10((x**2).mean() / (error**2).mean()) > decibel - 0.3


K_TYPES = [n for n in TYPES if n.endswith("_k")]


def plain_fit_rmse(x: np.ndarray, name: str) -> float:
    """RMSE of min-max (or absmax) codes per sub-block, with scales of full precision."""
    bits, run = int(name[1]), Format.registry[name].run
    sub = x.astype(np.float64).reshape(-1, run)
    if name in ("q3_k", "q6_k"):
        half = 1 << (bits - 1)
        largest = np.take_along_axis(sub, np.abs(sub).argmax(axis=1)[:, None], axis=1)
        scale = largest / -half
        codes = np.clip(np.rint(sub / scale), -half, half - 1)
        return float(np.sqrt(np.mean((codes * scale - sub) ** 2)))
    low = np.minimum(sub.min(axis=1, keepdims=True), 0)
    scale = (sub.max(axis=1, keepdims=True) - low) / ((1 << bits) - 1)
    codes = np.rint((sub - low) / scale)
    return float(np.sqrt(np.mean((codes * scale + low - sub) ** 2)))


@pytest.mark.parametrize("name", K_TYPES)
@pytest.mark.parametrize("tails", ["normal", "heavy"])
def test_k_quants_beat_a_plain_fit(name: str, tails: str) -> None:
    rng = np.random.default_rng(2)
    enc = encoding(name, (128, 4), 1)
    x = rng.standard_normal(enc.shape) if tails == "normal" else rng.standard_t(4, enc.shape)
    x = (0.02 * x).astype(np.float32)
    error = decode(enc, get_format(name).encode(x, enc)["blocks"]) - x.astype(np.float64)
    assert np.sqrt((error**2).mean()) < plain_fit_rmse(x, name)


@pytest.mark.parametrize("name", K_TYPES)
def test_k_quants_find_back_what_they_can_store(name: str) -> None:
    """Values on a grid of the type, the full range of codes in every sub-block."""
    f = Format.registry[name]
    bits, sub_blocks = int(name[1]), 256 // f.run
    rng = np.random.default_rng(3)
    low = -(1 << (bits - 1)) if name in ("q3_k", "q6_k") else 0
    codes = rng.integers(low, low + (1 << bits), (9, sub_blocks, f.run))
    codes[..., 0], codes[..., 1] = low, low + (1 << bits) - 1
    factors = rng.integers(1, 16, (9, sub_blocks, 1))
    factors[:, 0] = 15 if name == "q2_k" else 63 if low == 0 else -32 if name == "q3_k" else -128
    x = codes * factors * 2.0**-9
    if low == 0:  # the sub-block minimum is -15 or -63 steps of dmin
        x -= 2.0**-9 * (15 if name == "q2_k" else 63)
    x = x.reshape(9, 256).astype(np.float32)
    enc = encoding(name, (9, 1), 1)
    np.testing.assert_array_equal(decode(enc, f.encode(x, enc)["blocks"]), x)


@pytest.mark.parametrize("name", TYPES)
def test_zeros_are_exact_and_tiny_or_constant_blocks_harmless(name: str) -> None:
    size = Format.registry[name].block
    enc = encoding(name, (5, 1), 1)
    x = np.outer(np.float32([0, 1e-42, 3e-9, 7.0, -7.0]), np.ones(size, np.float32))
    got = decode(enc, get_format(name).encode(x, enc)["blocks"])
    assert not got[0].any()
    assert np.abs(got[1:3]).max() < 1e-7
    np.testing.assert_allclose(got[3:], x[3:], rtol=0.25 if "mx" in name else 2.0**-10)
