"""Weights at the ends of float32, in every format that there is."""

from __future__ import annotations

import numpy as np
import pytest

from jq.base.errors import FormatError
from jq.formats import NUMPY, Encoding, Format, get_format
from jq.formats.ggml import GgmlFormat
from jq.formats.ggml.iq import GridFormat
from tests.formats.encodings import AFFINE

SHAPE = (256, 4)
EVERY = [(n, s) for n in sorted(Format.registry) for s in ("symmetric", "asymmetric")]
EVERY = [(name, scheme) for name, scheme in EVERY if scheme == "symmetric" or name in AFFINE]
# Below 2^-126 a device may flush what is stored; beyond 2^126 a rounded scale may overflow.
NORMAL = [2.0**-100, 2.0**-14, 1.0, 65504.0, 2.0**100, 2.0**126]
NOTHING = [0.0, -0.0, 2.0**-149, -(2.0**-149)]


def arrays(value: float) -> list[np.ndarray]:
    """All of one value, every other one, and of both signs."""
    whole = np.full(SHAPE, value, np.float32)
    some, signs = whole.copy(), whole.copy()
    some[::2] = 0
    signs[::3] *= -1
    return [whole, -whole, some, signs]


def encoding(name: str, scheme: str) -> Encoding:
    block = get_format(name).default_block(SHAPE, 0) or (32, 1)
    return Encoding(name, SHAPE, block, scheme)


def round_trip(x: np.ndarray, enc: Encoding) -> np.ndarray:
    fmt = get_format(enc.format)
    return np.asarray(fmt.decode(NUMPY, fmt.encode(x, enc), enc), np.float32)


@pytest.mark.parametrize(("name", "scheme"), EVERY)
def test_nothing_stays_nothing(name: str, scheme: str) -> None:
    """Zeros of both signs, and the smallest subnormal number: none becomes larger."""
    for value in NOTHING:
        for x in arrays(value):
            assert (np.abs(round_trip(x, encoding(name, scheme))) <= np.abs(x).max()).all()


@pytest.mark.parametrize(("name", "scheme"), EVERY)
def test_ends_of_float32(name: str, scheme: str) -> None:
    """Finite, of the same sign, no larger than twice the largest; GGUF's scales of float16 refuse
    what is too large for them, and have no scale for what is too small. Points of a grid are never
    0, and share signs: IQ types keep the ends alone."""
    fmt = get_format(name)
    grid = isinstance(fmt, GridFormat)
    halves = isinstance(fmt, GgmlFormat) and fmt.half_scales
    for value in NORMAL:
        for x in arrays(value):
            if halves and value > 65504:
                with pytest.raises(FormatError, match="beyond float16"):
                    round_trip(x, encoding(name, scheme))
                continue
            found = round_trip(x, encoding(name, scheme))
            assert np.isfinite(found).all() and (np.abs(found) <= 2 * np.float64(value)).all()
            assert grid or (np.sign(found) * np.sign(x) >= 0).all()
            if not name.startswith("iq") and (not halves or value >= 1):  # some have no 0
                assert ((found == 0) == (x == 0)).all()
