"""Stored tensors in another axis order decode to the transposed values."""

from __future__ import annotations

import numpy as np
import pytest

from jq.formats import NUMPY, Encoding, get_format
from jq.ir.layout import moved_parts

CASES = [
    ("int8", (0, 1, 1), "symmetric"),
    ("int4", (32, 1, 1), "asymmetric"),
    ("uint2", (0, 0, 1), "asymmetric"),
    ("mxfp4", (32, 1, 1), "symmetric"),
    ("mxfp6_e2m3", (1, 32, 1), "symmetric"),
    ("nvfp4", (16, 1, 1), "symmetric"),
    ("float8_e4m3fn", (0, 1, 1), "symmetric"),
]


@pytest.mark.parametrize(("name", "block", "scheme"), CASES)
@pytest.mark.parametrize("order", [(2, 1, 0), (1, 2, 0)])
def test_decodes_to_the_transposed_values(name, block, scheme, order):
    fmt, enc = get_format(name), Encoding(name, (150, 7, 33), block, scheme)
    w = np.random.default_rng(0).standard_normal(enc.shape).astype(np.float32)
    parts = fmt.encode(w, enc)
    new, moved = moved_parts(enc, parts, order)
    assert {k: (v.shape, v.dtype) for k, v in moved.items()} == fmt.storage(new)
    want = np.asarray(fmt.decode(NUMPY, parts, enc)).transpose(order)
    assert np.array_equal(fmt.decode(NUMPY, moved, new), want)
