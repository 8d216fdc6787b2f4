"""Operands of shapes that an operator does not have are refused by name (see `wrong_shapes`)."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from jq.base.errors import UserError
from tests.frontends.onnx.wrong_shapes import computed, drawn, samples, verdict

SOUND = {"same", "refused", "lenient"}
COUNT = 60  # of more than 300; `scripts/suite.py onnx_shapes` draws as many as one likes


def test_operands_of_drawn_shapes() -> None:
    chosen = list(drawn(seed=0, each=1))
    order = np.random.default_rng(0).permutation(len(chosen))
    wrong = []
    for i in islice(order, COUNT):
        name, sample, key, array = chosen[i]
        found = verdict(sample, key, array)
        if found not in SOUND:
            wrong.append(f"{name}: {key} {array.shape}: {found}")
    assert not wrong, "\n".join(wrong)


STANDARD = [
    ("ConstantOfShape", "x", ()),
    ("ConvTranspose", "W", (2, 2, 3, 3)),
    ("DeformConv", "offset_with_padding", (8, 1, 4, 4)),
    ("Gemm", "c", (1, 1, 5)),
    ("GlobalAveragePool", "x", (75,)),
    ("InstanceNormalization", "s", (1,)),
    ("LayerNormalization", "W", (1, 1, 4)),
    ("MaxUnpool", "xI", (2, 1, 1, 2)),
    ("Reshape", "shape", (1, 1)),
    ("ScatterElements", "updates", (1, 1)),
    ("ScatterND", "updates", ()),
    ("Slice", "ends", (1, 2)),
]


@pytest.mark.parametrize(("op", "key", "shape"), STANDARD)
def test_operators_of_the_standard(op: str, key: str, shape: tuple[int, ...]) -> None:
    """Shapes that onnx's own inference lets through."""
    sample = next(one for name, one in samples().items() if name.split()[0] == op)
    array = (sample.given | sample.fixed)[key]
    assert array.shape != shape
    model, given = sample.model(key, np.resize(array, shape).astype(array.dtype))
    error = computed(model, given)
    assert isinstance(error, UserError)
    assert f"({key}) has shape {list(shape)}" in str(error) or f"{key!r} has shape" in str(error)


@pytest.mark.parametrize("shape", [(48, 16), (12, 2, 32), (24, 2, 15), (24, 3, 16), (768,)])
def test_codes_of_blocks_of_another_shape(shape: tuple[int, ...]) -> None:
    """They would be cut, or read in another order."""
    sample = samples()["MatMulNBits of 4 bits"]
    key = next(k for k, v in sample.fixed.items() if v.shape == (24, 2, 16))
    model, given = sample.model(key, np.resize(sample.fixed[key], shape))
    error = computed(model, given)
    assert isinstance(error, UserError)
    assert f"'b' ({key}) has shape {list(shape)}, and not [24, 2, 16]" in str(error)


def test_zero_points_of_blocks_of_another_shape() -> None:
    """They would be read in another order."""
    sample = samples()["MatMulNBits of 4 bits"]
    key = next(k for k, v in sample.fixed.items() if v.dtype == np.uint8 and v.shape == (24, 1))
    other = np.zeros((12, 2), np.uint8)
    model, given = sample.model(key, other)
    error = computed(model, given)
    assert isinstance(error, UserError)
    assert f"'zero_points' ({key}) has shape [12, 2], and not [24, 1] or [24]" in str(error)
