"""The last lines of `jaxq compile`: they are never a failure of what was compiled."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

import jq
from jq.base.errors import CompilerError
from jq.ir.oracle import loaded
from jq.ir.oracle.loaded import call_apart
from jq.reporting.measuring import glance
from jq.reporting.measuring.glance import at_a_glance, document, verdict

WEIGHTS = np.random.default_rng(0).standard_normal((2, 64, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def compiled() -> jq.CompiledModel:
    def two(params: Any, x: np.ndarray) -> Any:
        return (x @ params["first"]) @ params["second"]

    samples = np.random.default_rng(1).standard_normal((9, 1, 64)).astype(np.float32)
    params = {"first": WEIGHTS[0], "second": WEIGHTS[1]}
    model = jq.Model(two, params, (samples[0],), evaluation=[(x,) for x in samples])
    return jq.compile(model, "int8-dynamic")


def test_the_layer_that_is_named_is_that_of_all_samples(compiled: jq.CompiledModel) -> None:
    found = at_a_glance(compiled)
    assert found.whole and found.found is not None and found.found.samples == 9
    every = jq.compare(compiled.source, compiled, layers=True).layers
    named = document(found)
    worst = min(every, key=lambda layer: layer.isolated_sqnr_db)
    assert named is not None and named["worst_layer"]["name"] == worst.name
    assert f"worst layer is {worst.name}" in verdict(found, "smaller")


def test_no_layer_is_named_by_a_few_samples(
    compiled: jq.CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glance, "WORK", 1)
    found = at_a_glance(compiled)
    assert not found.whole and found.found is not None and found.found.samples == 4
    named = document(found)
    assert named is not None and named["worst_layer"] is None
    assert "worst layer" not in verdict(found, "smaller")


@pytest.mark.parametrize("error", [CompilerError("XLA refuses"), RuntimeError("XLA refuses\nall")])
def test_what_cannot_be_measured_is_said(
    compiled: jq.CompiledModel, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(glance, "call_apart", fails)
    found = at_a_glance(compiled)
    assert found.found is None
    said = verdict(found, "smaller")
    assert said.startswith("Smaller.\nIt was not compared with the float model: XLA refuses; ")
    assert "--no-measure" in said
    assert document(found) == {"failure": found.failure}


def test_a_reference_that_crashes_is_no_failure_of_the_artifact(
    compiled: jq.CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crashes(pipe: Any, message: Any) -> None:
        os.kill(loaded._PROCESS.pid, signal.SIGSEGV)
        raise EOFError

    monkeypatch.setattr(loaded, "_send", crashes)
    assert "has crashed" in at_a_glance(compiled).failure
    monkeypatch.undo()
    assert at_a_glance(compiled).found is not None  # another process has taken its place


def test_a_third_evaluator_says_who_is_right() -> None:
    model = jq.Model(lambda _, x: (x @ x.T) * 3, {}, (WEIGHTS[0],))
    program = jq.trace(model).program
    right, wrong = [3 * WEIGHTS[0] @ WEIGHTS[0].T], [2 * WEIGHTS[0] @ WEIGHTS[0].T]
    who, *theirs = glance.third(program, [WEIGHTS[0]])
    assert "interpreter" in who
    assert "the artifact is right" in glance.ruling(wrong, right, who, *theirs)
    assert "the artifact is wrong" in glance.ruling(right, wrong, who, *theirs)
    assert "neither" in glance.ruling(wrong, wrong, who, *theirs)
    assert not glance.ruling(right, right, who, *theirs)


def test_large_programs_have_a_faster_third_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glance, "SLOW", 1)
    model = jq.Model(lambda _, x: x @ x.T, {}, (WEIGHTS[0],))
    who, *theirs = call_apart(glance.third, jq.trace(model).program, [WEIGHTS[0]])
    assert "interpreter" in who  # `SLOW` is that of this process
    who, *theirs = glance.third(jq.trace(model).program, [WEIGHTS[0]])
    assert "without optimizations" in who
    assert glance.agreement([WEIGHTS[0] @ WEIGHTS[0].T], theirs[0]) > glance.AGREE


def test_a_wrong_reference_is_said(
    compiled: jq.CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(function: Any, *given: Any) -> Any:
        if function is not glance.references:
            return function(*given)
        outputs, inside = function(*given)
        return [[0.9 * np.asarray(y) for y in call] for call in outputs], inside

    assert not at_a_glance(compiled).ruling  # what is quantized is no judge
    floating = jq.compile(compiled.source, "float")
    assert not at_a_glance(floating).ruling
    monkeypatch.setattr(glance, "call_apart", wrong)
    found = at_a_glance(floating)
    assert "the artifact is right" in found.ruling and found.ruling in verdict(found, "smaller")


def test_a_model_that_magnifies_rounding_accuses_nobody() -> None:
    """IREE's product begins with what is added to it, so that each of its sums is rounded at 1e6;
    the interpreter rounds once, as XLA does."""
    x = np.random.default_rng(1).standard_normal((64, 32)).astype(np.float32)
    model = jq.Model(lambda w, x: (x @ w + 1e6) - 1e6, x[:32], (x,), calibration=[(x,)])
    found = at_a_glance(jq.compile(model, "float", measure=False))
    assert "magnifies rounding" in found.ruling


def test_what_no_third_evaluator_can_say_is_compared_all_the_same(
    compiled: jq.CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(function: Any, *given: Any) -> Any:
        if function is glance.third:
            raise jq.CompilerError("it has crashed")
        return call_apart(function, *given)

    floating = jq.compile(compiled.source, "float")
    monkeypatch.setattr(glance, "call_apart", fails)
    monkeypatch.setattr(glance, "agreement", lambda *_: 0.0)
    found = at_a_glance(floating)
    assert found.found is not None and found.ruling.endswith("is right: it has crashed")
