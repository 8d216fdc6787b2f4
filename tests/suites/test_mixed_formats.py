"""A sample of `scripts/suite.py mixed_formats`."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize("seed", [3, 15, 35, 1016])
def test_drawn_networks(judged: Any, seed: int) -> None:
    """In 3 an op is refused; in 15 two roundings turn codes; in 35 a convolution of int16 codes
    ends in codes of int8; in 1016 a value has a reader in blocks."""
    from suites.mixed_formats import Case, judge
    from suites.outcome import REFUSED, RIGHT

    (found,) = judged(judge, [Case(seed, iree=seed == 35)])
    assert found.verdict == (REFUSED if seed in (3, 1016) else RIGHT), found


@pytest.mark.parametrize(("framework", "network", "rules"), [("nnx", 0, 0)])
def test_networks_of_frameworks(judged: Any, framework: str, network: int, rules: int) -> None:
    from suites.mixed_networks import Case, judge
    from suites.outcome import RIGHT

    (found,) = judged(judge, [Case(framework, network, rules)])
    assert found.verdict == RIGHT, found
