from __future__ import annotations

import json
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jq.base.errors import UserError
from jq.driver.comparison.outputs import compare_outputs, samples_of
from jq.driver.comparison.result import Comparison, Inside, LayerError

KEYS = {"name", "shape", "sqnr_db", "cosine", "cosine_min", "max_abs_error", "match"}


def one(r: Any, q: Any, samples: int = 1) -> Any:
    return compare_outputs([[np.asarray(r)]], [[np.asarray(q)]], samples=[samples]).outputs[0]


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_sums_over_calls_equal_the_formulas_over_all(calls: int, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    r = rng.standard_normal((calls, rows, 7))
    q = r + 0.1 * rng.standard_normal(r.shape)
    got = compare_outputs([[a] for a in r], [[a] for a in q], samples=[rows] * calls).outputs[0]
    flat_r, flat_q = r.reshape(-1, 7), q.reshape(-1, 7)
    cosines = [a @ b / math.sqrt((a @ a) * (b @ b)) for a, b in zip(flat_r, flat_q, strict=True)]
    assert got.sqnr_db == pytest.approx(10 * np.log10((r**2).sum() / ((r - q) ** 2).sum()))
    assert got.cosine == pytest.approx(np.mean(cosines))
    assert got.cosine_min == pytest.approx(np.min(cosines))
    assert got.max_abs_error == np.abs(r - q).max()
    assert got.match is None


def test_a_call_is_one_sample_unless_its_rows_are() -> None:
    r, q = np.array([[1.0, 0.0], [0.0, 3.0]]), np.array([[0.0, 1.0], [0.0, 3.0]])
    assert one(r, q).cosine == pytest.approx(0.9)
    assert one(r, q, samples=2).cosine == pytest.approx(0.5)
    assert one(r, q, samples=2).cosine_min == 0.0


def test_samples_of_inputs() -> None:
    assert samples_of([np.zeros((8, 3)), np.zeros((8, 2, 2))]) == 8
    assert samples_of([np.zeros((8, 3)), np.zeros((4, 3))]) == 1
    assert samples_of([np.zeros(128), np.zeros(())]) == 1


def test_equal_outputs() -> None:
    got = one([1.0, -2.0], [1.0, -2.0])
    assert (got.sqnr_db, got.cosine, got.max_abs_error) == (math.inf, 1.0, 0.0)


def test_zero_vectors() -> None:
    zero, some = [0.0, 0.0], [0.0, 1.0]
    assert one(zero, zero).cosine == 1.0
    assert one(some, zero).cosine == one(zero, some).cosine == 0.0
    assert one(some, zero).sqnr_db == 0.0
    assert one(zero, some).sqnr_db == -math.inf


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e38])
def test_cosine_does_not_depend_on_scale(scale: float) -> None:
    got = one(np.array([1.0, 1.0]) * scale, np.array([1.0, 0.0]) * scale)
    assert got.cosine == pytest.approx(math.sqrt(0.5))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_broken_result_is_never_hidden(bad: float) -> None:
    got = one([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0, bad]], samples=2)
    assert (got.nonfinite, got.max_abs_error, got.sqnr_db) == (1, math.inf, -math.inf)
    assert (got.cosine, got.cosine_min) == (0.5, 0.0)
    assert "1 not finite" in str(Comparison((got,)))


def test_equal_infinities_are_equal() -> None:
    got = one([1.0, -math.inf, math.nan], [1.0, -math.inf, math.nan])
    assert (got.nonfinite, got.sqnr_db, got.cosine) == (0, math.inf, 1.0)


def test_integer_outputs_have_a_match() -> None:
    got = one(np.array([1, 2, 3, 4], np.int32), np.array([1, 2, 3, 7], np.int32))
    assert (got.match, got.max_abs_error) == (0.75, 3.0)
    assert one(np.array([True, False]), np.array([True, True])).match == 0.5


def test_bfloat16_outputs() -> None:
    x = np.array([1.0, 2.0], ml_dtypes.bfloat16)
    assert one(x, x).match is None
    assert one(x, x).sqnr_db == math.inf


def test_the_document() -> None:
    inside = Inside((LayerError("layer1/w", "dot_general", 40.0, 0.99, 0.5, 45.0, 0.999, 0.25),))
    both = [[np.ones((2, 3)), np.ones(4, np.int8)]]
    document = compare_outputs(both, both, names=["a", "b"], inside=inside).to_dict()
    assert {"outputs", "layers", "metrics"} <= set(document)
    assert [set(o) >= KEYS for o in document["outputs"]] == [True, True]
    assert [o["name"] for o in document["outputs"]] == ["a", "b"]
    assert document["layers"] == [
        {
            "name": "layer1/w",
            "op": "dot_general",
            "sqnr_db": 40.0,
            "cosine": 0.99,
            "max_abs_error": 0.5,
            "isolated_sqnr_db": 45.0,
            "isolated_cosine": 0.999,
            "isolated_max_abs_error": 0.25,
        }
    ]
    assert json.loads(json.dumps(document)) == document


def test_mistakes_are_told() -> None:
    with pytest.raises(UserError, match="float gives"):
        one(np.zeros(2), np.zeros(3))
    with pytest.raises(UserError, match="nothing to compare"):
        compare_outputs([], [])
    with pytest.raises(UserError, match="labels"):
        compare_outputs(
            [[np.zeros((2, 2))]], [[np.zeros((2, 2))]], labels=[1], metrics=["accuracy"]
        )


def test_outputs_without_elements_and_complex_ones() -> None:
    empty = np.zeros((0, 8), np.float32)
    (nothing,) = compare_outputs([[empty]], [[empty]], samples=[0]).outputs
    assert (nothing.sqnr_db, nothing.cosine, nothing.max_abs_error) == (math.inf, 1.0, 0.0)
    r = np.array([[3 + 4j, 1j]], np.complex64)
    (found,) = compare_outputs([[r]], [[r + 0.5j]]).outputs
    assert found.sqnr_db == pytest.approx(10 * math.log10(26 / 0.5))
    assert found.max_abs_error == 0.5


def test_nan_of_the_float_model_is_told():
    nan = np.array([[1.0, np.nan], [np.inf, 2.0]], np.float32)
    found = compare_outputs([[nan]], [[nan]])
    assert found.outputs[0].nonfinite == 0 and found.outputs[0].undefined == 1
    assert "float has 1 NaN" in str(found)
