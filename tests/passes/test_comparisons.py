"""Codes of 16 bits are compared in two words, which hold the whole product."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jq.formats import NUMPY
from jq.formats.arrays import NumpyOps
from jq.passes.integer import _comparisons


@given(st.integers(-(2**16 - 1), 2**16 - 1), st.integers(1, 2**30))
@example(2**16 - 1, 2**30)
@example(-(2**16) + 1, 2**30)
@example(2**16 - 1, 2**30 - 1)
@example(-(2**16) + 1, 2**30 - 1)
def test_two_words_are_the_product(code: int, by: int) -> None:
    with pytest.MonkeyPatch.context() as patch, np.errstate(over="raise"):
        patch.setattr(_comparisons, "OPS", NUMPY)
        patch.setattr(_comparisons, "centered", lambda leaf: leaf)
        leaf: Any = np.array([code], np.int32)
        high, low = (int(word[0]) for word in _comparisons._words(leaf, by))
    assert (high << 15) + low == code * by and 0 <= low < 1 << 15
    assert -(2**31) <= high < 2**31


HOLDS = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less}
HOLDS |= {"LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal}


class Comparing(NumpyOps):
    def compare(self, a: Any, b: Any, direction: str) -> Any:
        return HOLDS[direction](a, b)


@pytest.mark.parametrize("direction", HOLDS)
def test_where_high_words_are_equal_the_low_ones_decide(
    direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products far apart, one step of a low word apart, and equal, on both sides of 0."""
    given = {"OPS": Comparing(), "dtype_of": lambda x: x.dtype, "repeated": lambda _, x: x}
    given |= {"splat_of": lambda *_: None, "rounded_as": lambda *_: ""}
    given |= {"centered": lambda x: x.codes.astype(np.int32), "direction_of": lambda _: direction}
    for name, stub in given.items():
        monkeypatch.setattr(_comparisons, name, stub)
    codes = np.array([-32767, -20000, -3, -1, 0, 1, 2, 7, 9000, 32767], np.int16)
    pairs = [x.reshape(-1) for x in np.meshgrid(codes, codes)]
    pairs = [np.append(x, y) for x, y in zip(pairs, (codes // 2, codes // 2 * 2), strict=True)]
    for by in (1 << 29, (1 << 29) + 1, (1 << 29) - 1, 12345, 1 << 15):
        scales = 1.0, by / (1 << 30)
        leaves = [
            SimpleNamespace(codes=x, scale=scale, zero_point=0)
            for x, scale in zip(pairs, scales, strict=True)
        ]
        op: Any = SimpleNamespace(operands=leaves, results=[None])
        found = _comparisons.comparison(None, op, None)  # type: ignore[arg-type]
        x, y = (v.astype(np.int64) for v in pairs)
        assert np.array_equal(found, HOLDS[direction](x << 30, y * by))
