"""Codes of 16 bits are compared in two words, which hold the whole product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jq.formats import NUMPY
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
