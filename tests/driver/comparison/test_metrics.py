"""Metrics: the built-in ones by hand, and functions of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.driver.comparison.metrics import check, retrieval_agreement, top1_agreement
from jq.driver.comparison.outputs import compare_outputs
from jq.driver.comparison.result import Comparison
from jq.reporting.report.document import _beside_float

REFERENCE = [[np.array([[3.0, 1.0], [0.0, 1.0]])], [np.array([[1.0, 2.0], [2.0, 1.0]])]]
QUANTIZED = [[np.array([[3.0, 1.0], [1.0, 0.0]])], [np.array([[1.0, 2.0], [2.0, 1.0]])]]


def figures(*metrics: Any, **options: Any) -> Any:
    given = {"samples": [2, 2], "labels": np.array([0, 1, 0, 0]), **options}
    return compare_outputs(
        REFERENCE, QUANTIZED, metrics=[check(m) for m in metrics], **given
    ).metrics


def test_accuracy_and_agreement() -> None:
    got = figures("accuracy", "top1")
    assert got["accuracy"] == {"float": 0.75, "quantized": 0.5}
    assert got["top1_agreement"] == {"float": 1.0, "quantized": 0.75}


def test_errors_by_name_are_those_of_the_worst_float_output() -> None:
    reference = [[np.ones((2, 2)), np.array([[3.0, 4.0]]), np.array([1, 2])]]
    quantized = [[np.ones((2, 2)), np.array([[3.0, 0.0]]), np.array([2, 1])]]
    names = ("sqnr", "cosine", "cosine_min", "max_abs_error")
    got = compare_outputs(reference, quantized, metrics=[check(n) for n in names]).metrics
    assert got["sqnr_db"] == {"float": np.inf, "quantized": pytest.approx(10 * np.log10(25 / 16))}
    assert got["cosine"] == got["cosine_min"] == {"float": 1.0, "quantized": pytest.approx(0.6)}
    assert got["max_abs_error"] == {"float": 0.0, "quantized": 4.0}


def test_an_agreement_is_not_beside_itself() -> None:
    """It compares both models already: the float model's own says nothing."""
    both = {"accuracy": {"float": 0.9, "quantized": 0.8}}
    both |= {"top1_agreement": {"float": 1.0, "quantized": 0.998}}
    both |= {"sqnr_db": {"float": np.inf, "quantized": 31.5}}
    shown = str(Comparison((), metrics=both, samples=4))
    assert "float 0.9000, quantized 0.8000" in shown
    assert "0.9980 of the samples" in shown and "1.0000" not in shown
    assert "31.5000" in shown and "inf" not in shown
    assert "both models choose the same class is 0.998" in _beside_float(
        "top1_agreement", "1", "0.998"
    )


def test_agreements() -> None:
    scores = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert top1_agreement(scores, scores[::-1]) == 0.0
    points = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    assert retrieval_agreement(points, points * 5) == 1.0
    assert retrieval_agreement(points, points[[0, 2, 1, 3]]) == 0.0


def test_functions_by_their_number_of_arguments() -> None:
    def largest(outputs: Any) -> float:
        return float(outputs.max())

    def right(outputs: Any, labels: Any = None) -> dict[str, float]:
        return {"right": float((outputs.argmax(1) == labels).sum())}

    def distance(reference: Any, quantized: Any, labels: Any) -> np.float32:
        return np.float32(np.abs(reference - quantized).sum())

    assert figures(largest, right, distance) == {
        "largest": {"float": 3.0, "quantized": 3.0},
        "right": {"float": 3.0, "quantized": 2.0},
        "distance": {"float": 0.0, "quantized": 2.0},
    }


def test_a_function_sees_the_shape_of_the_result() -> None:
    def metric(outputs: Any, labels: Any) -> float:
        return float(outputs["logits"].sum())

    got = figures(metric, rebuild=lambda leaves: {"logits": leaves[0]})
    assert got == {"metric": {"float": 11.0, "quantized": 11.0}}


def test_mistakes_are_told() -> None:
    def broken(outputs: Any) -> float:
        raise ValueError("no such luck")

    for metric, message in [("acuracy", "accuracy"), (broken, "broken failed.*no such luck")]:
        with pytest.raises(UserError, match=message):
            figures(metric)
    with pytest.raises(UserError, match="needs labels"):
        figures("accuracy", labels=None)
    with pytest.raises(UserError, match="labels for"):
        figures("accuracy", labels=[1])


def test_compare_takes_metrics(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    params = {"w": rng.standard_normal((16, 4), np.float32)}
    batches = [(rng.standard_normal((4, 16), np.float32),) for _ in range(3)]
    model = jq.Model(lambda p, x: x @ p["w"], params, batches[0])
    compiled = jq.compile(model)
    labels = np.concatenate([(x @ params["w"]).argmax(1) for (x,) in batches])
    (tmp_path / "own.py").write_text("def spread(outputs):\n    return outputs.std()\n")
    metrics = ["accuracy", "retrieval_agreement", f"{tmp_path}/own.py:spread"]
    got = jq.compare(model, compiled, batches, metric=metrics, labels=labels)
    assert list(got.metrics) == ["accuracy", "retrieval_agreement", "spread"]
    assert got.metrics["accuracy"]["float"] == 1.0
    assert jq.compare(model, compiled, batches, metric="cosine").metrics["cosine"] == {
        "float": 1.0,
        "quantized": got.outputs[0].cosine,
    }
