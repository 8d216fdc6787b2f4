"""Processes stay for the next jobs, and the moments of one plan for the next."""

from __future__ import annotations

import os
from pathlib import Path

from jq.jobs import Workers, prepare, run_jobs
from jq.jobs.processes import _idle
from jq.moments.known import KnownMoments
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


def test_moments_are_kept_for_the_same_question_alone() -> None:
    known, made = KnownMoments(), []
    program = load(TEXT)

    def ask(question: str) -> None:
        known.of(program, question, lambda: made.append(question) or {})

    for question in ("a", "a", "b", "a"):
        ask(question)
    assert made == ["a", "b", "a"]
    name = next(iter(program.weights))
    program.weights[name] = program.weights[name].copy()  # a pass made another
    ask("a")
    assert made == ["a", "b", "a", "a"]
