"""Calls that the standard does not allow are refused, with what is wrong; those that it allows are
the node cases of the onnx package (`test_node_cases`)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import jq
from jq.base.errors import UserError
from jq.frontends.onnx.walk import Walk
from jq.frontends.source import trace
from tests.frontends.onnx.test_load import save

X = {"x": (1, 4, 6, 6)}


def refused(
    folder: Path, op: str, given: dict[str, tuple[int, ...]], arrays: Any, **attributes: Any
) -> str:
    inputs = [(name, TensorProto.FLOAT, shape) for name, shape in given.items()]
    names = [*given, *arrays]
    nodes = [helper.make_node(op, names, ["y"], **attributes)]
    path = save(folder / "m.onnx", nodes, inputs, [("y", TensorProto.FLOAT, None)], arrays)
    with pytest.raises(UserError) as info:
        trace(jq.load_onnx(path))
    return str(info.value)


KERNEL = {"w": np.zeros((4, 4, 3, 3), np.float32)}
GRID = {"grid": np.zeros((1, 6, 6, 3), np.float32)}


@pytest.mark.parametrize(
    ("op", "given", "arrays", "attributes", "reason"),
    [
        ("Gemm", {"x": (2, 3), "z": (1, 3, 4)}, {}, {}, "Input 1 expected to have rank 2"),
        ("Conv", X, KERNEL, {"pads": [1, 1]}, "Attribute pads has incorrect size"),
        ("Conv", X, KERNEL, {"dilations": [0, 1]}, "Attribute dilations must"),
        ("MaxPool", X, {}, {"kernel_shape": [2, 2], "pads": [1]}, "Attribute pads has"),
        ("GridSample", X, GRID, {}, "The last dimension of the grid tensor"),
        ("Softmax", X, {}, {"axis": 7}, "'axis' must be in"),
        ("Concat", {"x": (1, 2), "z": (2, 3)}, {}, {"axis": 0}, "Can't merge shape info"),
        ("Transpose", X, {}, {"perm": [0, 0, 1, 2]}, "perm"),
        ("ReduceMean", X, {}, {"keepdims": 2}, "its keepdims is 2, and not 0 or 1"),
        ("TopK", X, {"k": np.array([2])}, {"largest": -1}, "its largest is -1, and not 0 or 1"),
        ("Gather", X, {"i": np.array([0, 9])}, {"axis": 1}, "indices 0 to 9 of an axis of 4"),
        ("CumSum", X, {"axis": np.array(7)}, {}, "axis 7 of 4"),
        ("SpaceToDepth", X, {}, {"blocksize": 0}, "[Bb]locksize"),
    ],
)
def test_what_the_standard_does_not_allow(
    op: str, given: Any, arrays: Any, attributes: Any, reason: str, tmp_path: Path
) -> None:
    """Something was computed of most of them."""
    found = refused(tmp_path, op, given, arrays, **attributes)
    assert found.startswith(f"{op}: ") and re.search(reason, found), found
    assert "\n" not in found and "onnxruntime" not in found


def test_a_normalization_in_integers(tmp_path: Path) -> None:
    """`stash_type` 2 is uint8, in which it was computed."""
    scale = {"scale": np.ones(6, np.float32)}
    found = refused(tmp_path, "LayerNormalization", X, scale, stash_type=TensorProto.UINT8)
    assert "its stash_type is 2, no type of floats" in found


def test_a_condition_may_be_longer_than_the_axis(tmp_path: Path) -> None:
    """Elements chosen beyond the end were NaN."""
    arrays = {"condition": np.array([False, True, True, True])}
    nodes = [helper.make_node("Compress", ["x", "condition"], ["y"], axis=0)]
    ends = [(name, TensorProto.FLOAT, None) for name in "y"]
    path = save(tmp_path / "m.onnx", nodes, [("x", TensorProto.FLOAT, (2, 3))], ends, arrays)
    assert trace(jq.load_onnx(path)).program.outputs[0].shape == (1, 3)


def test_a_branch_in_a_branch_is_walked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice each: the innermost of 20 a million times."""
    graph = branch([helper.make_node("Relu", ["x"], ["o"])])
    for _ in range(9):
        other = branch([helper.make_node("Neg", ["x"], ["o"])])
        graph = branch([helper.make_node("If", ["c"], ["o"], then_branch=graph, else_branch=other)])
    node = helper.make_node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
    inputs = [("x", TensorProto.FLOAT, (2, 3)), ("c", TensorProto.BOOL, ())]
    path = save(tmp_path / "m.onnx", [node], inputs, [("y", TensorProto.FLOAT, None)])
    walked, inner = [], Walk._node

    def counted(self: Walk, node: Any, *rest: Any) -> Any:
        walked.append(node.op)
        return inner(self, node, *rest)

    monkeypatch.setattr(Walk, "_node", counted)
    assert trace(jq.load_onnx(path)).program.outputs[0].shape == (2, 3)
    assert walked.count("Relu") <= 2 * 2  # of both branches; JAX may trace a function once more


def branch(nodes: list[Any]) -> Any:
    return helper.make_graph(nodes, "b", [], [helper.make_tensor_value_info("o", 1, None)])
