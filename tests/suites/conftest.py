"""The suites of `scripts/` can be imported here, and run in one process that may crash."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import pytest

from tests.support.child import SCRIPTS, Child


@pytest.fixture(scope="session", autouse=True)
def _scripts() -> Iterator[None]:
    sys.path.insert(0, str(SCRIPTS))
    yield
    sys.path.remove(str(SCRIPTS))


@pytest.fixture(autouse=True)
def _log() -> Iterator[None]:
    """A suite silences the log of its process, which is that of other tests too."""
    before = logging.root.manager.disable
    yield
    logging.disable(before)


@pytest.fixture(scope="session")
def judged(child: Child) -> Callable[..., list[Any]]:
    """Outcomes of a batch; where it fails as a whole, of each case for itself."""
    from suites import worker

    def found(judge: Callable[..., Any], batch: Sequence[Any]) -> list[Any]:
        try:
            outcomes = child.call(judge, batch)
        except BrokenProcessPool:
            outcomes = [None]
        if None not in outcomes:
            return outcomes
        return list(worker.run(batch, judge, lambda case: ("", str(case)), together=len(batch)))

    return found
