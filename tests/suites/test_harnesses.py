"""A fixed sample of JAX's own cases; `scripts/suite.py harnesses` runs all of them."""

from __future__ import annotations

import time
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

import pytest

from tests.support.child import Child

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "refusals.md"
# Every twelfth group: two cases of each.
STRIDE = 12


def judge(pipeline):
    from suites import primitives

    return partial(primitives.judge, pipeline=pipeline)


def test_a_sample_is_right_or_listed_as_refused(judged):
    from suites import primitives, refusals
    from suites.outcome import REFUSED, RIGHT, SKIPPED

    groups = sorted({h.group_name for h in primitives.ALL})[::STRIDE]
    found = judged(judge("float"), primitives.chosen(2, groups))
    listed = {(group, reason) for group, _, reason in refusals.rows(PAGE.read_text())}
    assert len(found) >= len(groups)
    for one in found:
        known = one.verdict == REFUSED and (one.group, one.reason) in listed
        assert one.verdict in (RIGHT, SKIPPED) or known, one


def test_what_the_page_lists_is_refused(judged):
    from suites import primitives, refusals
    from suites.outcome import REFUSED

    named = {(h.group_name, h.name): i for i, h in enumerate(primitives.ALL)}
    # A version of JAX has other cases than the next one: those that it has.
    listed = [row for row in refusals.rows(PAGE.read_text()) if row[:2] in named]
    assert listed
    found = judged(judge("float"), [named[group, name] for group, name, _ in listed])
    assert {(one.group, one.name, one.reason) for one in found} == set(listed)
    assert {one.verdict for one in found} == {REFUSED}


@pytest.mark.parametrize(
    "pipeline", ["int8-dynamic", "int8-static", "int8-weight-only", "int4-weight-only"]
)
def test_contractions_keep_within_what_rounding_can_change(pipeline, judged):
    from suites import primitives
    from suites.outcome import RIGHT

    groups = ("conv_general_dilated", "dot_general", "gather")
    found = judged(judge(pipeline), primitives.chosen(2, groups))
    assert [one for one in found if one.verdict != RIGHT] == []


def test_a_wrong_number_is_seen():
    import numpy as np
    from suites.close import difference

    x = np.linspace(1, 2, 5, dtype=np.float32)
    assert difference(x, x) == ""
    assert difference(x * np.float32(1 + 1e-5), x)
    assert difference(np.array([np.inf], "f4"), np.array([np.nan], "f4"))
    assert difference(np.array([1], "i4"), np.array([2], "i4"))
    assert difference(np.array([1], "i4"), np.array([1], "i8"))


def test_a_process_that_dies_is_an_outcome():
    from suites import worker
    from suites.outcome import CRASHED

    found = list(worker.run([1, 2], dies, lambda i: ("group", str(i)), together=2))
    assert sorted((one.name, one.verdict) for one in found) == [("1", CRASHED), ("2", CRASHED)]


def test_a_process_that_dies_is_followed_by_another():
    child = Child()
    with pytest.raises(BrokenProcessPool):
        child.call(dies, ())
    assert child.call(abs, -1) == 1
    child.stop()


def test_a_call_that_never_ends_is_ended():
    child = Child()
    with pytest.raises(BrokenProcessPool):
        child.call(time.sleep, 1000, limit=5)
    assert child.call(abs, -1) == 1
    child.stop()


def dies(batch):
    import os

    os._exit(9)
