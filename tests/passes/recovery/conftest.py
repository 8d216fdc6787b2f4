from __future__ import annotations

import numpy as np
import pytest

from tests.passes.recovery import models


@pytest.fixture(autouse=True)
def _quick(quick_xla: None) -> None:
    """Most of the time here is XLA's compiler."""


@pytest.fixture(scope="module", autouse=True)
def _plain_rounding() -> None:
    """Not here, where recovery is what is tested."""


@pytest.fixture(autouse=True)
def _same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same models whatever tests ran before in the process."""
    monkeypatch.setattr(models, "RNG", np.random.default_rng(0))
