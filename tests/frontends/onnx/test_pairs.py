"""`QLinearAdd` and `QLinearMul`: all pairs of codes are what ONNX Runtime computes, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jq.frontends.onnx import pairs
from tests.frontends.onnx.against_ort import both, one_node

F32 = np.float32
KINDS = (np.uint8, np.int8)
# Scales in simple ratios, whose sums are often half way, and of a residual network, whose first
# sum has ten pairs next to the middle that ONNX Runtime rounds to the other side.
SCALES = {
    "any": (0.0367, 0.0815, 0.0552),
    "simple": (0.1, 0.05, 0.3),
    "half": (0.04, 0.04, 0.08),
    "network": (0.06557706, 0.03569947, 0.03578482),
}
CONSTANT = ("sa", "za", "sb", "zb", "sy", "zy")


def given(dtype: Any, scales: tuple[float, ...], a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    low = int(np.iinfo(dtype).min)
    zeros = [dtype(low + z) for z in (134, 121, 7)]
    sa, sb, sy = map(F32, scales)
    return {"a": a, "sa": sa, "za": zeros[0], "b": b, "sb": sb, "zb": zeros[1]} | {
        "sy": sy,
        "zy": zeros[2],
    }


def check(op: str, inputs: dict[str, Any]) -> None:
    ours, theirs = both(one_node(op, inputs, 1, CONSTANT), CONSTANT, inputs)
    np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.parametrize("name", SCALES)
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_every_pair_of_codes(op: str, dtype: Any, name: str) -> None:
    codes = np.arange(256).astype(dtype)
    a, b = (v.ravel() for v in np.meshgrid(codes, codes))
    check(op, given(dtype, SCALES[name], a, b))


SHAPES = {
    "channels behind": ((2, 8, 9, 32), (1, 8, 1, 1)),
    "channels in front": ((1, 8, 1, 1), (2, 8, 9, 32)),
    "a number in front": ((), (4096,)),
    "rows in front": ((64,), (256, 64)),
    "both": ((1, 64, 1), (2, 1, 64)),
}


@pytest.mark.parametrize("shapes", SHAPES)
def test_the_side_that_is_repeated_is_added_last(shapes: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 256, s).astype(np.uint8) for s in SHAPES[shapes])
    for scales in SCALES.values():
        check("QLinearAdd", given(np.uint8, scales, a, b))


def test_most_sums_need_no_table() -> None:
    """Whole numbers for scales as calibration finds them."""
    rng, dtype, found = np.random.default_rng(0), np.dtype(np.uint8), 0
    for _ in range(20):
        scales, zeros = rng.uniform(0.02, 0.1, 3).astype(F32), rng.integers(0, 256, 3)
        x, z, y = (pairs.Scaled(dtype, s, int(n)) for s, n in zip(scales, zeros, strict=True))
        whole = x.numbers - x.zero, z.numbers - z.zero
        ratios = x.scale / y.scale, z.scale / x.scale
        found += pairs._scales(*whole, *map(float, ratios), pairs.sums(x, z, y), y) is not None
    assert found >= 16
