"""Artifacts in memory that is watched; `scripts/suite.py memory` runs any number of cases."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import sys
from functools import partial

import numpy as np
import pytest

from tests.support.texts import load

# A gather as IREE takes it: nobody has clamped its indices.
GATHER = """(%x: tensor<1000x3xf32>, %i: tensor<2x1xi32>, %w: tensor<1000xf32>
    {jq.weight = "w"}) -> (tensor<2x3xf32>, tensor<1000xf32>) {
  %y = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
    collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 3>}> : (tensor<1000x3xf32>, tensor<2x1xi32>) -> tensor<2x3xf32>
  %z = stablehlo.slice %x [0:1000, 0:1] : (tensor<1000x3xf32>) -> tensor<1000x1xf32>
  %f = stablehlo.reshape %z : (tensor<1000x1xf32>) -> tensor<1000xf32>
  %s = stablehlo.add %f, %w : tensor<1000xf32>
  return %y, %s : tensor<2x3xf32>, tensor<1000xf32> }"""


def built(places, *, storage):
    from suites import memory

    x = np.arange(3000, dtype=np.float32).reshape(1000, 3)
    return memory.build(load(GATHER), [x, np.array(places, np.int32)[:, None]], storage=storage)


def call(made, late):
    from suites import guard_pages

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # libraries would print where they are
    (rows, _) = guard_pages.call_guarded(made, late)
    np.testing.assert_array_equal(rows, np.arange(3000).reshape(1000, 3)[[0, 999]])


@pytest.fixture
def ends(monkeypatch):
    """The end of a process that calls an artifact; its imports are made once, before a fork.

    Python 3.11 looks for it in the path of its environment, and goes on without a word.
    """
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    children = multiprocessing.get_context("forkserver")
    children.set_forkserver_preload(["suites.guard_pages", call.__module__])

    def run(made, late=""):
        process = children.Process(target=call, args=(made, late))
        process.start()
        process.join(60)
        return process.exitcode

    return run


def test_guard_pages_are_hit(ends):
    """By what lies at the end of an input, a constant, a result; by a gather out of bounds."""
    made = built([0, 999], storage=True)
    assert ends(made) == 0
    for late in ("inputs", "constants", "results"):
        assert ends(made, late) == -signal.SIGSEGV, late
    assert ends(built([0, 1200], storage=True)) == -signal.SIGSEGV


def test_a_sample_of_indexing(judged):
    """Between guard pages, and under Valgrind where there is one."""
    from suites import primitives, watched
    from suites.outcome import RIGHT

    ways = ("guard", "valgrind") if shutil.which("valgrind") else ("guard",)
    chosen = primitives.chosen(2, ("dynamic_update_slice", "gather", "scatter", "sort"))
    found = judged(partial(watched.judge, pipeline="float", by=ways), chosen)
    assert [one for one in found if one.verdict != RIGHT] == []
    assert len(found) == 8


@pytest.mark.skipif(not shutil.which("valgrind"), reason="there is no valgrind")
def test_valgrind_sees_a_read_out_of_bounds():
    from suites import valgrind
    from suites.memory import StrayAccess

    with pytest.raises(StrayAccess, match="Invalid read"):
        valgrind.call_under_valgrind(built([0, 1200], storage=False))
