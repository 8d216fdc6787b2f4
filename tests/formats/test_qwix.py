"""Affine integers and nf4 against qwix, whose definitions agree where these tests say.

Differences: qwix's symmetric divisor is qmax + 0.5 (`absmax/127.5` here) and it adds the zero
point before rounding, which moves ties for odd zero points. Its MX types choose the scale by
ceil(log2(absmax / largest)): `scale_rounding` rceil.
"""

from __future__ import annotations

import numpy as np
import pytest

from jq.formats import NUMPY, Encoding, get_format

pytest.importorskip("qwix")
from qwix._src.core import qarray

X = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32)


def qwix_quantize(qtype: object, method: str, tiled: dict[int, int]) -> qarray.QArray:
    how = qarray.HowToQuantize(
        qtype=qtype, channelwise_axes=[1], tiled_axes=tiled, calibration_method=method
    )
    return qarray.quantize(X, how)


def same_quantization(enc: Encoding, theirs: qarray.QArray) -> None:
    """Scales within an ulp, for XLA divides by a constant inexactly; with theirs, equal codes.

    The symmetric divisor puts the largest number of a block on the middle of two codes, where
    that ulp decides: it is left out.
    """
    fmt = get_format(enc.format)
    parts = fmt.encode(X, enc)
    np.testing.assert_array_max_ulp(parts["scale"], np.asarray(theirs.scale), 1)
    zero = fmt.zero_point(NUMPY, parts, enc)
    if zero is not None:
        np.testing.assert_array_equal(zero, np.asarray(theirs.zero_point, np.int32))
    codes = fmt.quantize(X, np.asarray(theirs.scale), zero, enc)
    clear = (
        np.abs(codes.astype(int)) < 2 ** (fmt.bits - 1) - 1
        if zero is None
        else np.full(X.shape, True)
    )
    assert clear.mean() > 0.2
    np.testing.assert_array_equal(codes[clear], np.asarray(theirs.qvalue, np.int8)[clear])


@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("name", ["int2", "int4", "int8"])
def test_symmetric(name: str, block: int) -> None:
    theirs = qwix_quantize(name, "absmax", {0: block} if block else {})
    enc = Encoding(name, X.shape, (block, 1), options=(("divisor", "absmax/127.5"),))
    same_quantization(enc, theirs)


@pytest.mark.parametrize("name", ["int4", "int8"])
def test_asymmetric(name: str) -> None:
    theirs = qwix_quantize(name, "minmax", {0: 16})
    same_quantization(Encoding(name, X.shape, (16, 1), "asymmetric"), theirs)


def test_nf4() -> None:
    theirs = qarray.dequantize(qwix_quantize("nf4", "absmax", {0: 32}))
    enc = Encoding("nf4", X.shape, (32, 1))
    fmt = get_format("nf4")
    ours = np.asarray(fmt.decode(NUMPY, fmt.encode(X, enc), enc))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize(("ours", "theirs"), [("mxfp4", "mxfp4"), ("mxfp8_e4m3", "mxfp8")])
def test_mx(ours: str, theirs: str) -> None:
    want = qarray.dequantize(qwix_quantize(theirs, "absmax", {0: 32}))
    enc = Encoding(ours, X.shape, (32, 1), options=(("scale_rounding", "rceil"),))
    fmt = get_format(ours)
    np.testing.assert_array_equal(fmt.decode(NUMPY, fmt.encode(X, enc), enc), want)
