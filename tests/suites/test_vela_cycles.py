"""The check `vela_cycles` on one network: the estimate is near what Arm's compiler predicts."""

from __future__ import annotations

import pytest
from scipy.stats import spearmanr

import jq.models

pytest.importorskip("ethosu", reason="Arm's compiler Vela is not installed")
pytestmark = pytest.mark.usefixtures("quick_xla")


@pytest.mark.parametrize("device", ["ethos-u55-256", "ethos-u85-256"])
def test_the_estimate_is_near_vela(device: str) -> None:
    from checks.vela_cycles import RANK, TOTAL, layers

    found = layers(jq.models.build("digits_cnn", batch=1), device)
    assert len(found) == 5
    ours, theirs = zip(*found.values(), strict=True)
    assert abs(sum(ours) / sum(theirs) - 1) < TOTAL
    assert spearmanr(ours, theirs).statistic > RANK - 1e-9
