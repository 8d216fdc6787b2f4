"""A sample of `scripts/suite.py samplers`: what failed, in the shape that failed."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(("name", "shape"), [("loggamma", ()), ("poisson", (3,))])
def test_a_sampler(name: str, shape: tuple[int, ...]) -> None:
    from suites import samplers

    outcome = samplers.run(name, shape)
    assert outcome.right and not outcome.said, outcome
