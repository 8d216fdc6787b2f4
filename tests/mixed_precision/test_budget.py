"""Budgets and candidates: what is read, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from jq.base.errors import UserError
from jq.driver.comparison.outputs import compare_outputs
from jq.mixed_precision.budget import check_figures, parse_budget
from jq.mixed_precision.candidates import make_candidates, parse_candidate
from jq.passes.pipeline import load_pipeline
from jq.target.rules import apply_overrides

BASE = load_pipeline("int8-dynamic").settings


@pytest.mark.parametrize(
    ("text", "name", "at_least", "limit"),
    [
        ("sqnr_db>=35", "sqnr_db", True, 35),
        (" sqnr >= 35 dB ", "sqnr_db", True, 35),
        ("accuracy_drop<=0.5", "accuracy_drop", False, 0.5),
        ("size<=3e-1", "size", False, 0.3),
        ("latency<=5ms", "latency", False, 5),
        ("some/file.py:loss<=-2", "loss", False, -2),
        ("some/file.py:accuracy>=90", "accuracy", True, 90),  # a function may count in percent
    ],
)
def test_what_is_read(text, name, at_least, limit):
    found = parse_budget(text)
    assert (found.name, found.at_least, found.limit) == (name, at_least, limit)
    assert found.function == (f"some/file.py:{name}" if ":" in text else "")


def test_built_in_figures_that_are_asked_for():
    """Not those that a function gives, whatever it calls them: `accuracy` needs labels."""
    own, ours = parse_budget("some/file.py:accuracy>=0.9"), parse_budget("accuracy>=0.9")
    assert check_figures([own, parse_budget("size<=0.3")], None) == []
    assert check_figures([own, ours], "cosine") == ["accuracy"]
    assert check_figures([ours], lambda outputs: {"accuracy": 1.0}) == []
    with pytest.raises(UserError, match="no figure 'recall'"):
        check_figures([parse_budget("recall>=0.5")], None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cosine", "cannot read budget"),
        (0.99, "cannot read budget 0.99; write NAME>=VALUE"),
        ("cosine>0.9", "cannot read budget"),
        ("cosine>=much", "cannot read budget"),
        ("cosine>=nan", "cannot read budget"),
        ("cosine<=0.9", "wrong side; write cosine>=0.9"),
        ("size>=0.3", "wrong side; write size<=0.3"),
        ("accuracy_drop>=1", "wrong side"),
        ("accuracy>=90", "no accuracy is above 1"),
        ("latency<=-1ms", "no latency is below 0"),
        ("size<=5ms", "size has no unit ms"),
    ],
)
def test_what_is_refused(text, message):
    with pytest.raises(UserError, match=message):
        parse_budget(text)


def test_values_of_a_comparison():
    scores, labels = np.eye(4), np.arange(4)
    worse = scores[[0, 1, 2, 2]]
    comparison = compare_outputs([[scores]], [[worse]], labels=labels, metrics=["accuracy"])
    assert parse_budget("accuracy>=0.7").value(comparison) == 0.75
    assert parse_budget("accuracy_drop<=20").value(comparison) == 25  # points
    assert parse_budget("max_abs_error_drop<=1").value(comparison) == -1
    assert parse_budget("sqnr_db>=1").value(comparison) == pytest.approx(10 * np.log10(4 / 2))
    with pytest.raises(UserError, match="no figure 'recall'"):
        parse_budget("recall>=1").value(comparison)


def test_nan_holds_nothing():
    assert not parse_budget("cosine>=0.1").holds(np.nan)
    assert not parse_budget("size<=0.1").holds(np.nan)


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        ("float", {"format": "float"}),
        ("bfloat16", {"format": "bfloat16"}),
        ("int8-dynamic", {}),
        ("int4", {"weights.format": "int4", "weights.granularity": "per-block"}),
        (
            "int4/64",
            {
                "weights.format": "int4",
                "weights.granularity": "per-block",
                "weights.block_size": 64,
            },
        ),
        ("int8-weight-only", {"activations.format": "float"}),
        (
            "mine: weights.format=int2, min_elements=5",
            {"weights.format": "int2", "min_elements": 5},
        ),
    ],
)
def test_candidates(text, overrides):
    found = parse_candidate(text, BASE).rule
    assert {k: found.get(k) for k in overrides} == overrides
    assert text != "int8-dynamic" or not found


@pytest.mark.parametrize("name", ["int8-static", "int4-weight-only", "mxfp4-weight-only"])
def test_a_pipeline_as_a_candidate_has_its_formats(name):
    wanted = load_pipeline(name).settings
    got = apply_overrides(BASE, parse_candidate(name, BASE).rule, where="test")
    assert (got.weights, got.activations) == (wanted.weights, wanted.activations)


def test_the_usual_candidates():
    names = [c.name for c in make_candidates([], BASE, "int8-dynamic")]
    assert names[:3] == ["float", "int8-dynamic", "int4"]
    weights = load_pipeline("int4-weight-only").settings
    assert "int4" not in {c.name for c in make_candidates([], weights, "int4-weight-only")}


def test_unknown_candidates():
    for name in ("int99", "int4/x", "int8-dynamics"):
        with pytest.raises(UserError, match="unknown candidate"):
            make_candidates([name], BASE, "int8-dynamic")
    with pytest.raises(UserError, match="two candidates"):
        make_candidates(["a: weights.format=int4", "a: weights.format=int8"], BASE, "int8-dynamic")
