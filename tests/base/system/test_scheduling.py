"""A thread that waits for workers lets the one that wakes it go on."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from iree import runtime as rt

from jq.base.errors import JqError
from jq.base.system.threads import patient
from jq.iree.runtime import Executable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux's policies")


class Context:
    """Notes the caller's policy in a call, and fails."""

    def __init__(self) -> None:
        self.policies: list[int] = []

    def invoke(self, *_: Any) -> None:
        self.policies.append(os.sched_getscheduler(0))
        raise ValueError("no such function")


@pytest.mark.parametrize(("workers", "policy"), [(True, "SCHED_BATCH"), (False, "SCHED_OTHER")])
def test_a_call_waits_patiently_for_workers_alone(workers: bool, policy: str) -> None:
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    context, _ = Context(), rt.VmInstance()  # lists of values need one
    run = Executable(context, None, None, None, workers)
    for call in (run, run.call_placed, run.bind()):
        with pytest.raises(JqError, match="no such function"):
            call()
    assert context.policies == [getattr(os, policy)] * 3
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_another_policy_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[Any] = []
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_IDLE)
    monkeypatch.setattr(os, "sched_setscheduler", lambda *given: changed.append(given))
    with patient():
        pass
    assert not changed


def test_a_system_that_forbids_it_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with patient():
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
