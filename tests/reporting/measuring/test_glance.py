"""What `jaxq compile` says at its end: it is never a failure of what was compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jq
from jq.base.errors import CompilerError
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

    monkeypatch.setattr(glance, "compare_layers", fails)
    found = at_a_glance(compiled)
    assert found.found is None
    said = verdict(found, "smaller")
    assert said.startswith("Smaller.\nIt was not compared with the float model: XLA refuses; ")
    assert "--no-measure" in said
    assert document(found) == {"failure": found.failure}
