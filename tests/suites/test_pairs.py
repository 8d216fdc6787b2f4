"""A sample of `scripts/suite.py differential --pairs`, and that what is wrong is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", ["transposed", "halves", "split", "permuted"])
def test_pairs_agree(judged: Any, name: str, seed: int) -> None:
    from suites.differential.pairs import Case, judge
    from suites.outcome import RIGHT

    (found,) = judged(judge, [Case(name, seed)])
    assert found.verdict == RIGHT, found


def test_every_pair_is_in_the_sample() -> None:
    from suites.differential.pairs import PAIRS

    assert set(PAIRS) == {"transposed", "halves", "split", "permuted"}


@pytest.mark.parametrize("name", ["halves", "permuted"])
def test_a_pair_that_differs_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The second of the two programs has one weight that is twice as large."""
    from suites.differential import pairs as module

    seen = list[Any]()

    def quantized(drawn: Any, *given: Any) -> Any:
        program = right(drawn, *given)
        seen.append(program)
        at = next(n for n in program.weights if n.endswith(":scale"))
        changed = {at: program.weights[at] * 2} if len(seen) == 2 else {}
        return replace(program, weights={**program.weights, **changed})

    right = module.quantized
    monkeypatch.setattr(module, "quantized", quantized)
    assert module.differs(module.Case(name, 1))
    assert len(seen) == 2
