"""Formats against torchao, where both mean the same; skipped where it is not installed.

torchao multiplies by the inverse of a scale where we divide (as ONNX does): a code may differ by
one where the quotient is within rounding of a tie. Its symmetric scheme is `absmax/127.5` on the
full range, and `absmax/127` where it is told to leave the lowest code out.
"""

from __future__ import annotations

import numpy as np
import pytest

from jq.formats import NUMPY, Encoding, get_format

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torchao", reason="torchao is not installed")
primitives = pytest.importorskip("torchao.quantization.quant_primitives")
mx = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor")

X = np.random.default_rng(0).standard_normal((48, 256)).astype(np.float32)
X *= np.random.default_rng(1).uniform(0.01, 10, (48, 1)).astype(np.float32)


def agree(mine: np.ndarray, theirs: np.ndarray, quotient: np.ndarray) -> None:
    """Equal codes, but for neighbours where the quotient is next to a tie."""
    differ = mine != theirs
    assert np.abs(mine[differ].astype(int) - theirs[differ]).max(initial=0) <= 1
    tie = np.abs(np.abs(quotient - np.floor(quotient)) - 0.5)
    assert (tie[differ] <= 2.0**-20 * np.abs(quotient[differ])).all()
    assert differ.mean() < 1 / 64  # the largest of a block is a tie of absmax/127.5


@pytest.mark.parametrize(
    ("name", "block", "scheme", "divisor", "limits"),
    [
        ("int8", 0, "symmetric", "absmax/127.5", (-128, 127)),
        ("int8", 0, "symmetric", "absmax/127", (-127, 127)),
        ("int4", 32, "symmetric", "absmax/127.5", (-8, 7)),
        ("int4", 32, "asymmetric", "", (-8, 7)),
        ("int8", 64, "asymmetric", "", (-128, 127)),
        ("uint4", 32, "asymmetric", "", (0, 15)),
    ],
)
def test_integers(name, block, scheme, divisor, limits):
    options = (("divisor", divisor),) if divisor else ()
    enc, fmt = Encoding(name, X.shape, (1, block), scheme, "float32", options), get_format(name)
    parts = fmt.encode(X, enc)
    size, dtype = (1, block or X.shape[1]), torch.uint8 if limits[0] == 0 else torch.int8
    mapping = getattr(primitives.MappingType, scheme.upper())
    scale, zero = primitives.choose_qparams_affine(
        torch.from_numpy(X), mapping, size, dtype, *limits, scale_dtype=torch.float32
    )
    theirs = primitives.quantize_affine(torch.from_numpy(X), size, scale, zero, dtype, *limits)
    assert np.array_equal(parts["scale"].reshape(-1), scale.numpy().reshape(-1))
    half = 1 << (fmt.bits - 1) if limits[0] == 0 else 0  # unsigned numbers are held as signed ones
    codes = fmt.codes(NUMPY, parts, enc).astype(int) + half
    if scheme == "asymmetric":
        mine = fmt.zero_point(NUMPY, parts, enc) + half
        assert np.array_equal(mine.reshape(-1), zero.numpy().reshape(-1))
    agree(
        codes,
        theirs.numpy(),
        X / np.repeat(parts["scale"], X.shape[1] // parts["scale"].shape[1], 1),
    )
    back = primitives.dequantize_affine(
        torch.from_numpy((codes).astype(np.uint8 if half else np.int8)),
        size, scale, zero, dtype, *limits, output_dtype=torch.float32,
    )  # fmt: skip
    assert np.array_equal(fmt.decode(NUMPY, parts, enc), back.numpy())


def test_float8_by_rows():
    enc, fmt = Encoding("float8_e4m3fn", X.shape, (1, 0)), get_format("float8_e4m3fn")
    parts = fmt.encode(X, enc)
    x = torch.from_numpy(X)
    scale = primitives._choose_scale_float8(x, (1, X.shape[1]), torch.float8_e4m3fn)
    theirs = primitives._quantize_affine_float8(x, scale, torch.float8_e4m3fn)
    assert np.array_equal(parts["scale"].reshape(-1), scale.numpy().reshape(-1))
    assert np.array_equal(parts["codes"], theirs.view(torch.int8).numpy())


@pytest.mark.parametrize("rounding", ["floor", "ceil", "rceil", "even"])
@pytest.mark.parametrize(
    ("name", "element"), [("mxfp8_e4m3", torch.float8_e4m3fn), ("mxfp8_e5m2", torch.float8_e5m2)]
)
def test_mx(name, element, rounding):
    enc = Encoding(name, X.shape, (1, 32), options=(("scale_rounding", rounding),))
    parts = get_format(name).encode(X, enc)
    mode = mx.ScaleCalculationMode(rounding)
    scale, data = mx.to_mx(torch.from_numpy(X), element, 32, mode)
    assert np.array_equal(parts["scale"].view(np.uint8), scale.view(torch.uint8).numpy())
    assert np.array_equal(parts["codes"], data.view(torch.int8).numpy())


def test_mxfp4():
    enc = Encoding("mxfp4", X.shape, (1, 32))
    parts = get_format("mxfp4").encode(X, enc)
    scale, data = mx.to_mx(torch.from_numpy(X), torch.float4_e2m1fn_x2, 32)
    assert np.array_equal(parts["scale"].view(np.uint8), scale.view(torch.uint8).numpy())
    assert np.array_equal(parts["codes"].view(np.uint8), data.view(torch.uint8).numpy())
