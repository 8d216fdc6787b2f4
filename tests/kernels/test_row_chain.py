"""Rows that take several steps in one dispatch: the bits of the kernels of these steps in turn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from jq.base.errors import InternalError
from jq.kernels import Kernel, Normalize, QuantizeRows, RowQuantization, SplitRows
from jq.kernels.rowwise.row_chain import Added, Coded, Digits, Normalized, RowChain, RowStep
from tests.kernels.harness import Runner
from tests.kernels.strategies import HERE
from tests.support.drawn import random_example

SCHEMES = (RowQuantization(), RowQuantization(narrow=False), RowQuantization("asymmetric"))


def coded(width: int) -> st.SearchStrategy[Coded]:
    return st.builds(Coded, st.sampled_from([16, width]), st.sampled_from(SCHEMES))


@st.composite
def kernels(draw: st.DrawFn) -> RowChain:
    width, m = 16 * draw(st.integers(1, 12)), draw(st.integers(1, 3))
    digits = st.builds(Digits, st.sampled_from([16, 32, 48]), st.sampled_from([2, 3]))
    steps: list[RowStep] = []
    for _ in range(draw(st.integers(1, 2))):
        keep, forms = draw(st.booleans()), st.booleans()
        steps.append(Normalized(1e-6, draw(forms), draw(forms), draw(forms), keep))
        steps += draw(st.lists(coded(width) | digits, max_size=2))
        steps.append(Added(draw(st.booleans())))
        steps += draw(st.lists(coded(width) | digits, max_size=2))
    steps.append(draw(coded(width)))
    return RowChain(isa=draw(st.sampled_from(HERE)), m=m, k=width, steps=tuple(steps))


def alone(kernel: RowChain, step: RowStep) -> Kernel | None:
    """The kernel of a step; None where it has none."""
    isa, m, k = kernel.isa, kernel.m, kernel.k
    match step:
        case Normalized(epsilon, center, gamma, beta):
            return Normalize(
                isa=isa, m=m, k=k, epsilon=epsilon, center=center, gamma=gamma, beta=beta
            )
        case Digits(block, digits):
            return SplitRows(isa=isa, m=m, k=k, block=block, digits=digits)
        case Coded(block, scheme):
            return QuantizeRows(isa=isa, m=m * k // block, k=block, scheme=scheme)
    return None


@random_example(st.lists(kernels(), min_size=4, max_size=4))
def test_the_bits_of_its_steps(drawn: list[RowChain], seed: int) -> None:
    others = [found for k in drawn for s in k.steps if (found := alone(k, s))]
    places = {found: len(drawn) + i for i, found in enumerate(dict.fromkeys(others))}
    runner, rng = Runner([*drawn, *places]), np.random.default_rng(seed)
    for i, kernel in enumerate(drawn):
        operands = [rng.standard_normal(t.shape).astype(np.float32) for t in kernel.operands]
        results = iter(runner.run(i, *operands))
        row, given = operands[0], iter(operands[1:])
        for step in kernel.steps:
            found, taken = alone(kernel, step), [next(given) for _ in kernel.taken(step)]
            if found is None:
                made = [row + taken[0]]
            else:
                made = runner.run(places[found], row.reshape(found.operands[0].shape), *taken)
            if isinstance(step, Normalized | Added):
                (row,) = made
            for kind, wanted in zip(kernel.given(step), made, strict=False):
                got = next(results)
                np.testing.assert_array_equal(
                    got, wanted.reshape(kind.shape), strict=True, err_msg=kernel.to_json()
                )


def test_its_description_survives() -> None:
    steps = (
        Normalized(keep=True),
        Added(),
        Coded(16, RowQuantization("asymmetric")),
        Digits(32, 2),
    )
    kernel = RowChain(isa=HERE[-1], m=1, k=64, steps=steps)
    assert Kernel.from_json(kernel.to_json()) == kernel


def test_steps_that_it_does_not_take() -> None:
    for steps, reason in (
        ((Normalized(), Normalized()), "normalized again"),
        ((Normalized(), Coded(48)), "whole blocks"),
        ((Normalized(), Coded(16, RowQuantization("static"))), "found at run time"),
        ((Normalized(), Digits(16, 4)), "4 digits"),
    ):
        with pytest.raises(InternalError, match=reason):
            RowChain(isa="portable", m=1, k=64, steps=steps)
