"""A fixed sample of the onnx package's node cases; `scripts/suite.py onnx_cases` runs all."""

from __future__ import annotations

import pytest

from jq.base.errors import UserError
from tests.frontends.onnx.node_cases import EXCLUDED, cases, excluded, run

STEP = 24
SAMPLE = list(cases())[7::STEP]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_node_case_passes_or_is_listed(name: str) -> None:
    if excluded(name):
        with pytest.raises((UserError, AssertionError)):
            run(cases()[name])
    else:
        run(cases()[name])


def test_every_exclusion_matches_a_case() -> None:
    listed = {excluded(name) for name in cases()}
    unused = [why for why in EXCLUDED.values() if why not in listed]
    assert unused in ([], ["the domain ai.onnx.ml"])
