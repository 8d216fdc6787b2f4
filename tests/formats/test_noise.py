"""Signal to quantization noise on normal weights: known figures that a wrong format misses."""

from __future__ import annotations

import numpy as np
import pytest

from jq.formats import NUMPY, Encoding, get_format

# dB; "absmax/127" blocks of 32 with float16 scales give int8 that of ggml's Q8_0.
FIGURES = {"int8": 45.4, "mxint8": 41.7, "mxfp8_e4m3": 30.6, "int4": 20.2, "mxfp4": 18.9}


@pytest.mark.parametrize(("name", "decibel"), FIGURES.items(), ids=FIGURES)
def test_noise(name: str, decibel: float) -> None:
    x = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    fmt = get_format(name)
    enc = Encoding(name, x.shape, (32, 1), scale_type="float16")
    error = x - fmt.decode(NUMPY, fmt.encode(x, enc), enc)
    measured = 10 * np.log10(np.mean(x.astype(float) ** 2) / np.mean(error.astype(float) ** 2))
    assert measured == pytest.approx(decibel, abs=0.3)


def test_rounding_the_scale_late_would_cost_decibels() -> None:
    """The figure of MXFP4 is far from the 14 dB of codes taken before the scale is rounded."""
    x = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    fmt = get_format("float4_e2m1fn")
    enc = Encoding("float4_e2m1fn", x.shape, (1, 32))
    error = x - fmt.decode(NUMPY, fmt.encode(x, enc), enc)
    assert 10 * np.log10(np.mean(x**2) / np.mean(error**2)) > 18.5
