"""The suites of `scripts/` can be imported here."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.support.child import SCRIPTS


@pytest.fixture(scope="session", autouse=True)
def _scripts() -> Iterator[None]:
    sys.path.insert(0, str(SCRIPTS))
    yield
    sys.path.remove(str(SCRIPTS))
