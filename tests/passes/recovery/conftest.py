from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _quick(quick_xla: None) -> None:
    """Most of the time here is XLA's compiler."""
