"""The same models whatever tests ran before in the process."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.recovery import models


@pytest.fixture(autouse=True)
def _same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "RNG", np.random.default_rng(0))
