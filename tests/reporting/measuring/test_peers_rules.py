"""The peers benchmark's ONNX rewritings keep what a graph computes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"


@pytest.fixture
def tidy(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    from peers.onnx_rules import tidy

    return tidy


def graph(nodes, inputs, constants, result):
    rng = np.random.default_rng(0)
    return helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info(n, 1, s) for n, s in inputs.items()],
            [helper.make_tensor_value_info("y", 1, result)],
            [numpy_helper.from_array(np.asarray(c), n) for n, c in constants.items()],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
    ), {n: rng.standard_normal(s).astype(np.float32) for n, s in inputs.items()}


def check(tidy, model, feed, **expected):
    (want,) = ReferenceEvaluator(model).run(None, feed)
    after = tidy(model)
    onnx.checker.check_model(after)
    (y,) = ReferenceEvaluator(after).run(None, feed)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
    assert Counter(n.op_type for n in after.graph.node) == Counter(expected)


@pytest.mark.parametrize(
    ("equation", "shapes", "result", "transposes"),
    [
        ("abc,cd->abd", [(2, 3, 4), (4, 5)], (2, 3, 5), 0),
        ("bqnd,bknd->bnqk", [(2, 3, 4, 5), (2, 6, 4, 5)], (2, 4, 3, 6), 2),
        ("bnqk,bknd->bqnd", [(2, 4, 3, 6), (2, 6, 4, 5)], (2, 3, 4, 5), 2),
    ],
)
def test_products(tidy, equation, shapes, result, transposes):
    node = helper.make_node("Einsum", ["a", "b"], ["y"], equation=equation)
    model, feed = graph([node], dict(zip("ab", shapes, strict=True)), {}, result)
    expected = {"MatMul": 1} | ({"Transpose": transposes} if transposes else {})
    check(tidy, model, feed, **expected)


def test_a_norm_in_sums_becomes_one_in_means(tidy):
    nodes = [
        helper.make_node("ReduceSum", ["x", "axis"], ["s"], keepdims=0),
        helper.make_node("Reshape", ["s", "kept"], ["r"]),
        helper.make_node("Div", ["r", "size"], ["mean"]),
        helper.make_node("Sub", ["x", "mean"], ["d"]),
        helper.make_node("ReduceSumSquare", ["d", "axis"], ["q"], keepdims=0),
        helper.make_node("Reshape", ["q", "kept"], ["qr"]),
        helper.make_node("Div", ["qr", "size"], ["var"]),
        helper.make_node("Add", ["var", "eps"], ["v"]),
        helper.make_node("Sqrt", ["v"], ["root"]),
        helper.make_node("Div", ["one", "root"], ["inverse"]),
        helper.make_node("Mul", ["d", "inverse"], ["n"]),
        helper.make_node("Mul", ["n", "gain"], ["y"]),
    ]
    constants = {
        "axis": np.array([2], np.int64),
        "kept": np.array([2, 3, 1], np.int64),
        "size": np.float32(8),
        "eps": np.float32(1e-5),
        "one": np.float32(1),
        "gain": np.arange(8, dtype=np.float32).reshape(1, 1, 8),
    }
    model, feed = graph(nodes, {"x": (2, 3, 8)}, constants, (2, 3, 8))
    check(tidy, model, feed, ReduceMean=2, Sub=1, Pow=1, Add=1, Sqrt=1, Div=1, Mul=1)


def test_clips_and_differences(tidy):
    nodes = [
        helper.make_node("Sub", ["x", "c"], ["d"]),
        helper.make_node("Max", ["d", "zero"], ["r"]),
        helper.make_node("Min", ["r", "six"], ["y"]),
    ]
    constants = {"c": np.float32(0.5), "zero": np.float32(0), "six": np.float32(6)}
    model, feed = graph(nodes, {"x": (4, 5)}, constants, (4, 5))
    check(tidy, model, feed, Add=1, Clip=1)


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_a_bias_behind_a_product_counts_once(tidy, beta):
    nodes = [
        helper.make_node("Gemm", ["x", "w", "zero"], ["p"], beta=beta),
        helper.make_node("Add", ["p", "bias"], ["y"]),
    ]
    constants = {
        "w": np.eye(4, dtype=np.float32),
        "zero": np.float32(0),
        "bias": np.arange(4, dtype=np.float32),
    }
    model, feed = graph(nodes, {"x": (3, 4)}, constants, (3, 4))
    check(tidy, model, feed, Gemm=1)
