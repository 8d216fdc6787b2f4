"""The suite `exports`: drawn networks in every form, by the form's own reference."""

from __future__ import annotations

import pytest

for reference in ("tosa_reference_model", "ai_edge_litert", "onnxruntime"):
    pytest.importorskip(reference, reason=f"{reference} is not installed")
pytestmark = pytest.mark.usefixtures("quick_xla")


@pytest.mark.parametrize("seed", [0, 8, 1003, 1007, 5128])
def test_bits_are_the_same(seed: int) -> None:
    """1003: a sum of two that is also a multiple. 1007: a comparison for inequality.
    5128: a choice that is joined, whose scale is not its condition's."""
    from suites.exported import FORMS, outcomes

    found = list(outcomes(seed))
    assert [(o.suffix, o.target, o.codes) for o in found] == list(FORMS)
    assert not [o for o in found if o.wrong]
    assert not [o for o in found if o.refused]
