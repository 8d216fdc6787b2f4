"""Values that are read many times behind a reduction are looked through once."""

from __future__ import annotations

import numpy as np

import jq
from jq.oracle.xla import XlaExecutable


def test_a_chain_of_values_that_are_read_three_times() -> None:
    """There are 3^60 ways along it."""

    def powers(_: object, x: np.ndarray) -> np.ndarray:
        total = x.sum(1)
        for _ in range(60):
            total = total * total + total
        return total

    x = np.full((2, 3), -0.1, np.float32)
    program = jq.rewrite(jq.Model(powers, {}, (x,)), pipeline="float")["target"]
    assert "optimization_barrier" not in program.text()
    assert np.isfinite(XlaExecutable(program)(x)).all()
