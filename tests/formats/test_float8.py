"""Scaled 8-bit floats: each kind of scale, against ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from jq.base.errors import FormatError
from jq.formats import NUMPY, Encoding, get_format
from tests.formats.encodings import values
from tests.support.programs import Case, check

ORACLES = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
MX = {"float8_e4m3fn": "mxfp8_e4m3", "float8_e5m2": "mxfp8_e5m2"}
NAMES = pytest.mark.parametrize("name", ORACLES)


@NAMES
@pytest.mark.parametrize("scale_type", ["float32", "float16", "bfloat16"])
def test_per_channel(name: str, scale_type: str) -> None:
    oracle, x = ORACLES[name], np.abs(values((33, 9))) + np.float32(0.01)
    largest = np.float32(ml_dtypes.finfo(oracle).max)
    scale = (np.abs(x).max(axis=0, keepdims=True) / largest).astype(scale_type)
    wide = scale.astype(np.float32)
    want = np.clip(x / wide, -largest, largest).astype(oracle).astype(np.float32) * wide
    enc, fmt = Encoding(name, x.shape, (0, 1), scale_type=scale_type), get_format(name)
    parts = fmt.encode(x, enc)
    np.testing.assert_array_equal(parts["scale"], scale)
    np.testing.assert_array_equal(fmt.decode(NUMPY, parts, enc), want)


@NAMES
def test_a_power_of_two_per_block_of_32_is_the_mx_format(name: str) -> None:
    x, fmt, mx = values((64, 9)), get_format(name), get_format(MX[name])
    enc = Encoding(name, x.shape, (32, 1), scale_type="float8_e8m0fnu")
    want = mx.encode(x, Encoding(MX[name], x.shape, (32, 1)))
    got = fmt.encode(x, enc)
    assert {k: (v.shape, v.dtype) for k, v in got.items()} == fmt.storage(enc)
    for part, array in want.items():
        np.testing.assert_array_equal(got[part], array)


def test_powers_of_two_per_channel_in_a_program() -> None:
    x, fmt = values((64, 9)), get_format("float8_e4m3fn")
    options = (("rounding", "nearest"), ("scale_rounding", "rceil"))
    enc = Encoding("float8_e4m3fn", x.shape, (0, 1), "symmetric", "float8_e8m0fnu", options)
    parts = fmt.encode(x, enc)
    assert parts["scale"].shape == (1, 9)
    absmax = np.abs(x).max(axis=0)
    scale = np.asarray(fmt.scale(NUMPY, parts, enc))[0]
    live = absmax > 0
    assert (absmax <= 448 * scale)[live].all()  # nothing saturates
    assert (absmax > 224 * scale)[live].all()  # and no smaller power would do
    run = lambda o, c, s: fmt.decode(o, {"codes": c, "scale": s}, enc)  # noqa: E731
    check([Case(run, [parts["codes"], parts["scale"]])], "iree")


def test_refusals() -> None:
    fmt = get_format("float8_e4m3fn")
    for enc, reason in (
        (Encoding("float8_e4m3fn", (4,), (0,), "asymmetric"), "scheme"),
        (Encoding("float8_e4m3fn", (4,), (0,), scale_type="int8"), "scale type"),
        (Encoding("float8_e4m3fn", (4,), (0,), options=(("rounding", "up"),)), "rounding"),
        (Encoding("float8_e4m3fn", (4,), (0,), options=(("scale_rounding", "ceil"),)), "option"),
    ):
        with pytest.raises(FormatError, match=reason):
            fmt.check(enc)
