"""Shields look through the same op once, in memory that stays small."""

from __future__ import annotations

import numpy as np

import jq
from jq.ir.memory import _FRESH, origins
from tests.support.programs import evaluated


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
    assert np.isfinite(evaluated(program, x)).all()


def test_arguments_of_inner_blocks_leave_no_bits_behind() -> None:
    """A bit for each would make the bits of all values together grow with the square of the
    program."""

    def sums(_: object, x: np.ndarray) -> np.ndarray:
        for _ in range(30):
            x = x - x.sum()
        return x

    program = jq.rewrite(jq.Model(sums, {}, (np.ones(4, np.float32),)), pipeline="float")["float"]
    found = origins(program.body)
    assert program.text().count("stablehlo.reduce(") == 30
    values = [r for op in program.body.operations for r in op.operation.results]
    assert max(found[value] for value in values) < 8 << _FRESH
