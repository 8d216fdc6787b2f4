"""Processes stay for the next jobs, and the moments of one plan for the next."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jq.artifact.jobs import Workers, prepare, run_jobs
from jq.artifact.jobs.processes import _idle
from jq.planning.moments.collect import MomentsCache
from jq.planning.moments.gains import Gains
from tests.support.jobs import Squares
from tests.support.texts import load

TEXT = """(%x: tensor<2xf32>, %w: tensor<2xf32> {jq.weight = "w"}) -> tensor<2xf32> {
  return %x : tensor<2xf32>
}"""


def _who(folder: Path) -> set[int]:
    folder.mkdir()
    list(run_jobs(Squares(folder, seconds=0.2), range(4), Workers(2)))
    return {int(p.read_text()) for p in folder.iterdir()}


def test_the_same_processes_do_the_next_jobs(tmp_path: Path) -> None:
    prepare(Workers(2))
    first, second = _who(tmp_path / "a"), _who(tmp_path / "b")
    assert first == second and len(first) == 2 and os.getpid() not in first
    assert len([slot for slot in _idle if slot._pool is not None]) >= 2


def test_a_worker_of_a_pool_has_processes_of_ours(tmp_path: Path) -> None:
    """It is a daemon, which Python lets have no children, and ends without a word to them."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_squared, (tmp_path,)) == [1, 4]
        assert pool.apply(_waiting) == 0


def _waiting() -> int:
    return sum(slot._pool is not None for slot in _idle)


def _squared(folder: Path) -> list[int]:
    return sorted(
        int(found["square"]) for _, found in run_jobs(Squares(folder), (1, 2), Workers(2))
    )


def test_moments_are_kept_for_the_same_question_alone() -> None:
    known, made = MomentsCache(), []
    program = load(TEXT)

    def ask(question: str, gains: Gains | None = None) -> None:
        known.of(program, question, gains or Gains(), lambda: made.append(question) or {})

    for question in ("a", "a", "b", "a"):
        ask(question)
    assert made == ["a", "b"]
    ask("a", Gains({("w", 0): np.ones(1)}))  # rows that count otherwise
    assert made == ["a", "b", "a"]
    name = next(iter(program.weights))
    program.weights[name] = program.weights[name].copy()  # a pass made another
    ask("a")
    assert made == ["a", "b", "a", "a"]


def test_gains_that_an_answer_brought_are_known_again() -> None:
    known, program = MomentsCache(), load(TEXT)
    first, second = Gains(), Gains()

    def found_with(gains: Gains) -> dict[str, Any]:
        gains.known["w", 0] = np.ones(2)
        return {}

    known.of(program, "a", first, lambda: found_with(first))
    known.of(program, "a", second, lambda: pytest.fail("it is known"))
    assert second.digest() == first.digest() != Gains().digest()


def test_what_is_known_of_a_program_is_known_of_its_copy_elsewhere() -> None:
    known, program = MomentsCache(), load(TEXT)
    known.of(program, "a", Gains(), dict)
    copy, known = pickle.loads(pickle.dumps((program, known)))
    assert not known.is_of(copy)
    known.attach(copy)
    known.of(copy, "a", Gains(), lambda: pytest.fail("it is known"))


def test_a_weight_is_solved_once() -> None:
    known, one, other = MomentsCache(), np.ones((2, 2)), np.zeros((2, 2))
    made: list[str] = []

    def solve(how: str, array: np.ndarray) -> None:
        known.solved(how, {"weight": array}, lambda: made.append(how) or {"codes": array})

    for how, array in (("int8", one), ("int8", one.copy()), ("int4", one), ("int8", other)):
        solve(how, array)
    assert made == ["int8", "int4", "int8"]
