"""Names are checked before anything runs: budgets, metrics, rules, recovery, files, flags."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jq
from jq.base.errors import UserError

X = np.ones((4, 8), np.float32)


def own(outputs: Any, labels: Any) -> float:
    return 1.0


def model(metric: Any = None) -> jq.Model:
    params = {"w": np.eye(8, dtype=np.float32)}
    data = {"calibration": [(X,)], "evaluation": [(X,)], "labels": np.zeros(4, int)}
    return jq.Model(lambda p, x: x @ p["w"], params, (X,), metric=metric, **data)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"settings": ["recovery=adaroud"]}, "adaroud"),
    ({"settings": ["recovery=gptq,sequalize"]}, "sequalize"),
    ({"settings": ["weights.fromat=int4"]}, "fromat"),
    ({"rules": ["x: weights.fromat=int4"]}, "fromat"),
    ({"rules": ["x: floaty"]}, "floaty"),
    ({"pipeline": "int8-dynamik"}, "int8-dynamik"),
    ({"target": "avx513"}, "avx513"),
    ({"calibration": "none.npz"}, "no such file"),
    ({"iree_flags": ["--nope"]}, "no flag --nope"),
]
JUDGED: list[tuple[dict[str, Any], str]] = [
    ({"metric": "acc"}, "unknown metric 'acc'"),
    ({"metric": "none.py:f"}, "no such file"),
    ({"data": "none.npz"}, "no such file"),
]
BUDGETS: list[tuple[dict[str, Any], str]] = [
    ({"budget": "acc>=0.99"}, "no figure 'acc'"),
    ({"budget": ["size<=0.5", "none.py:f>=0.9"]}, "no such file"),
    ({"candidates": ["int9"]}, "unknown candidate 'int9'"),
    ({"cost": "speed"}, "unknown cost 'speed'"),
]


def refused(function: Any, words: str, given: dict[str, Any], whose: jq.Model) -> list[str]:
    """The stages that ran before a call was refused."""
    stages: list[str] = []
    with pytest.raises(UserError, match=words):
        function(whose, progress=lambda stage, share: stages.append(stage), **given)
    return stages


@pytest.mark.parametrize(("given", "words"), WRONG)
def test_of_what_every_function_takes(given: dict[str, Any], words: str) -> None:
    for function in (jq.compile, jq.plan, jq.explain, jq.compare, jq.search):
        if "iree_flags" in given and function in (jq.plan, jq.explain):
            continue
        more = {"budget": "cosine>=0.9"} if function is jq.search else {}
        stages = refused(function, words, given | more, model())
        assert set(stages) <= ({"trace"} if function is jq.compare else set())


@pytest.mark.parametrize(("given", "words"), JUDGED)
def test_of_what_a_model_is_judged_on(given: dict[str, Any], words: str) -> None:
    assert not refused(jq.compare, words, given, model())
    assert not refused(jq.search, words, {"budget": "cosine>=0.9"} | given, model())


@pytest.mark.parametrize(("given", "words"), BUDGETS)
def test_of_budgets(given: dict[str, Any], words: str) -> None:
    assert not refused(jq.search, words, {"budget": "cosine>=0.9"} | given, model())


@pytest.mark.parametrize("metric", [own, "top1_agreement"])
def test_of_budgets_for_a_metric_of_the_model(metric: Any) -> None:
    """The names of a function's figures are seen on the float model, before anything else."""
    stages = refused(jq.search, "no figure 'acc'", {"budget": "acc>=0.9"}, model(metric))
    assert set(stages) <= {"trace"}
