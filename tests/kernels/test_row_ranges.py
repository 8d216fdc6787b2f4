"""The smallest and the largest number of rows, against NumPy, with everything that is no number."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from jq.kernels import RowRanges
from tests.kernels.harness import Runner
from tests.kernels.references import reference
from tests.kernels.strategies import HERE, sizes
from tests.support.drawn import random_example

kernels = st.builds(RowRanges, isa=st.sampled_from(HERE), m=sizes, k=sizes)
STRANGE = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38])


@random_example(st.lists(kernels, min_size=12, max_size=12))
def test_every_shape(drawn: list[RowRanges], seed: int) -> None:
    runner, rng = Runner(drawn), np.random.default_rng(seed)
    for i, kernel in enumerate(drawn):
        for sign in (0, 1, -1):  # of both signs, of one: an end may be far from 0
            x = rng.normal(size=(kernel.m, kernel.k)).astype(np.float32)
            x = x if sign == 0 else sign * (np.abs(x) + 1)
            there = rng.random(x.shape) < 0.02
            x = np.where(there, rng.choice(STRANGE, x.shape), x).astype(np.float32)
            for found, wanted in zip(runner.run(i, x), reference(kernel, x), strict=True):
                np.testing.assert_array_equal(found, wanted, err_msg=kernel.to_json())
