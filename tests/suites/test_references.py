"""A sample of `scripts/suite.py differential --references`, and that what is wrong is seen."""

from __future__ import annotations

from typing import Any

import pytest


def test_drawn_references(judged) -> None:
    from suites.differential.references import Case, judge
    from suites.outcome import RIGHT

    found = [one for seed in range(6) for one in judged(judge, [Case(seed)])]
    assert [one for one in found if one.verdict != RIGHT] == []


def test_usual_options_are_seen_to_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """XLA reads from the tensor that it writes into."""
    from suites.differential.references import Case, judge
    from suites.outcome import WRONG

    from jq.ir.oracle import xla

    def usual(_: Any, **options: str) -> dict[str, str]:
        return options

    monkeypatch.setattr(xla, "xla_options", usual)
    (found,) = judge([Case(41)])
    assert found is not None and found.verdict == WRONG
