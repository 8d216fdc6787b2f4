"""Verdicts on figures, in words."""

from __future__ import annotations

import math

import numpy as np

from jq.driver.comparison.outputs import compare_outputs
from jq.driver.comparison.result import LayerError
from jq.reporting.measuring.verdict import (
    closeness,
    furthest,
    layer_verdict,
    noise_warning,
    outputs_verdict,
)


def layer(name: str, own: float) -> LayerError:
    return LayerError(name, "dot_general", 20.0, 0.99, 0.1, own, 0.999, 0.1)


def test_closeness() -> None:
    words = [closeness(db) for db in (math.inf, 40, 39.9, 25, 15, 14.9, math.nan)]
    assert words == [
        *("equal to", "very close to", "close to", "close to", "visibly off from"),
        *("far from", "far from"),
    ]


def test_of_outputs() -> None:
    x = np.ones((1, 100), np.float32)
    found = outputs_verdict(compare_outputs([[x]], [[x * 1.01]], samples=[1]))
    assert found.startswith("the outputs are very close to the float model's: noise is 1 % of")
    assert found.endswith("the cosine is 1.00000 or more on each of 1 sample")
    same = outputs_verdict(compare_outputs([[x], [x]], [[x], [x]]))
    assert same == "the outputs are equal to the float model's on 2 samples"


def test_the_worst_layer_is_the_one_that_makes_most_noise_itself() -> None:
    layers = [layer("good", 50.0), layer("bad", 30.0), layer("float", math.inf)]
    assert [each.name for each in furthest(layers, 5)] == ["bad", "good"]
    assert layer_verdict(layers).startswith("the worst layer is bad: 30.0 dB by itself")
    assert layer_verdict([layer("float", math.inf)]) == ""


def test_a_noisy_latency_is_told() -> None:
    assert noise_warning({"median_ms": 0.95, "p90_ms": 1.2}) == ""
    assert "noisy (median 0.95 ms, p90 125 ms)" in noise_warning({"median_ms": 0.95, "p90_ms": 125})
