"""`load_onnx` end to end: names, computed shapes, sizes; damaged and hostile files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import jq
from jq.base.errors import UserError
from jq.base.tree import structure_of, unflatten
from jq.cli.options import sized

RNG = np.random.default_rng(0)
FLOAT = TensorProto.FLOAT


def save(
    path: Path, nodes: list[Any], inputs: Any, outputs: Any, arrays: Any = None, opset: int = 17
) -> Path:
    initializers = [numpy_helper.from_array(v, k) for k, v in (arrays or {}).items()]
    values = [[helper.make_tensor_value_info(*v) for v in group] for group in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *values, initializers)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return path


def flattening(path: Path) -> Path:
    """A product after a reshape to sizes that the graph computes; large weights."""
    w = RNG.normal(size=(48, 100)).astype(np.float32)
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n", "first"], ["rows"]),
        helper.make_node("Concat", ["rows", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
        helper.make_node("ArgMax", ["y"], ["label"], axis=1, keepdims=0),
    ]
    integers = {"zero": 0, "first": [0], "rest": [-1]}
    arrays = {k: np.asarray(v, np.int64) for k, v in integers.items()} | {"w": w}
    outputs = [("y", FLOAT, ["batch", 100]), ("label", TensorProto.INT64, ["batch"])]
    return save(path, nodes, [("x", FLOAT, ["batch", 3, 4, 4])], outputs, arrays)


def test_a_model_keeps_its_names_types_and_computed_shapes(tmp_path: Path) -> None:
    path = flattening(tmp_path / "m.onnx")
    model = jq.load_onnx(path, sizes={"batch": 2})
    x = RNG.normal(size=(2, 3, 4, 4)).astype(np.float32)
    y = model.fn(model.params, x)
    weights = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    expected = x.reshape(2, -1) @ weights["w"]
    np.testing.assert_allclose(y["y"], expected, rtol=1e-5, atol=1e-5)
    assert y["label"].dtype == np.int64
    assert list(model.params) == ["w"]
    np.testing.assert_array_equal(model.params["w"], weights["w"])
    program = jq.trace(model).program
    assert [s.name for s in program.inputs] == ["x"]
    assert [s.name for s in program.outputs] == ["y", "label"]  # the file's order
    written = json.loads(json.dumps(structure_of(program.out_tree)))  # as an artifact keeps it
    assert list(unflatten(written, ["first", "second"]).items()) == [
        ("y", "first"),
        ("label", "second"),
    ]
    assert "reshape" in str(program.module) and "dynamic" not in str(program.module)


def test_open_sizes_are_given_when_tracing(tmp_path: Path) -> None:
    model = jq.load_onnx(flattening(tmp_path / "m.onnx"))
    assert jq.trace(model, sizes={"batch": 5}).program.inputs[0].shape == (5, 3, 4, 4)
    with pytest.raises(UserError, match="batch has no size"):
        jq.trace(model)


def test_nameless_sizes_are_those_of_an_axis(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    ends = [("x", FLOAT, [-1, 3, "?", "?"])], [("y", FLOAT, None)]
    path = save(tmp_path / "m.onnx", [node], *ends)
    (spec,) = jq.load_onnx(path, sizes={"x": (1, 3, 4, 8)}).example_inputs
    assert spec.shape == (1, 3, 4, 8)
    sizes = {"x[0]": 2, "x[2]": 5, "x[3]": 6}
    assert jq.load_onnx(path, sizes=sizes).example_inputs[0].shape == (2, 3, 5, 6)


def test_a_program_has_one_size_and_an_artifact_several(tmp_path: Path) -> None:
    path = flattening(tmp_path / "m.onnx")
    with pytest.raises(UserError, match=r"batch is given 2 sizes here.*--size batch=1,8"):
        jq.load_onnx(path, sizes={"batch": (1, 8)})
    compiled = jq.compile(jq.trace(jq.load_onnx(path), sizes={"batch": [1, 8]}), "float")
    for batch in (1, 8):
        x = np.ones((batch, 3, 4, 4), np.float32)
        alone = jq.compile(jq.load_onnx(path, sizes={"batch": batch}), "float")
        for ours, theirs in zip(compiled(x), alone(x), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_whole_shape_is_given_as_text_too(tmp_path: Path) -> None:
    path = flattening(tmp_path / "m.onnx")
    program = jq.trace(sized(str(path), {"sizes": ["x=2,3,4,4"], "values": None})).program
    assert program.outputs[0].shape == (2, 100)
    with pytest.raises(UserError, match="size x is 'abc'"):
        jq.trace(sized(str(path), {"sizes": ["x=abc"], "values": None}))


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    path = flattening(tmp_path / "m.onnx")
    with pytest.raises(UserError, match=r"'batsch'.*there are: batch"):
        jq.load_onnx(path, sizes={"batsch": 1})
    with pytest.raises(UserError, match="no input 'z'"):
        jq.load_onnx(path, values={"z": 1})


def test_all_missing_operators_are_named_at_once(tmp_path: Path) -> None:
    nodes = [helper.make_node("Bogus", ["x"], [f"b{i}"], domain="com.microsoft") for i in range(3)]
    nodes.append(helper.make_node("StringNormalizer", ["x"], ["y"], name="last"))
    path = save(tmp_path / "m.onnx", nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])])
    with pytest.raises(UserError) as caught:
        jq.load_onnx(path)
    for part in ("2 operators", "com.microsoft.Bogus (opset 1, 3 nodes, first 'b0')", "'last'"):
        assert part in str(caught.value)


def test_what_has_as_many_results_as_data_say_is_refused_with_where_to_cut(tmp_path: Path) -> None:
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores"], ["y"], name="/nms")
    ends = [("boxes", FLOAT, [1, 6, 4]), ("scores", FLOAT, [1, 2, 6])], [("y", 7, [None, 3])]
    with pytest.raises(UserError, match="how many results it has depends on the data") as caught:
        jq.load_onnx(save(tmp_path / "m.onnx", [node], *ends))
    assert "end the model at its inputs (boxes, scores)" in str(caught.value.hint)


def external(path: Path, location: str, *, offset: int = 0, length: int = 400) -> Path:
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[10, 10])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": offset, "length": length}.items():
        tensor.external_data.add(key=key, value=str(value))
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    ends = [[helper.make_tensor_value_info(n, FLOAT, [2, 10])] for n in "xy"]
    graph = helper.make_graph([node], "g", *ends, [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path.write_bytes(model.SerializeToString())
    return path


def test_a_large_tensor_may_say_that_its_data_are_inside(tmp_path: Path) -> None:
    path = flattening(tmp_path / "m.onnx")
    model = onnx.load(path)
    (tensor,) = (t for t in model.graph.initializer if t.name == "w")
    tensor.data_location = TensorProto.DEFAULT  # written, as ONNX Runtime's optimizer does
    path.write_bytes(model.SerializeToString())
    params = jq.load_onnx(path, sizes={"batch": 1}).params
    np.testing.assert_array_equal(params["w"], numpy_helper.to_array(tensor))


def test_external_data_are_mapped(tmp_path: Path) -> None:
    w = RNG.normal(size=(10, 10)).astype(np.float32)
    (tmp_path / "w.bin").write_bytes(b"\0" * 8 + w.tobytes())
    model = jq.load_onnx(external(tmp_path / "m.onnx", "w.bin", offset=8))
    np.testing.assert_array_equal(model.params["w"], w)
    base = model.params["w"]
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


@pytest.mark.parametrize(
    "location", ["../w.bin", "/etc/hostname", "link/w.bin", "w.bin", "", "a\0b"]
)
def test_a_path_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(b"\0" * 400)
    os.symlink(tmp_path, folder / "link")
    os.symlink(tmp_path / "w.bin", folder / "w.bin")
    with pytest.raises(UserError, match="is not in the model's folder") as refused:
        jq.load_onnx(external(folder / "m.onnx", location))
    linked = location in ("link/w.bin", "w.bin")
    assert ("copy there what the link leads to" in refused.value.hint) == linked


@pytest.mark.parametrize(
    ("offset", "length", "reason"),
    [(8, 400, "of a file of"), (-1, 400, "of a file of"), (0, 4 << 40, "its shape needs 400")],
)
def test_lying_sizes_are_refused(tmp_path: Path, offset: int, length: int, reason: str) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 400)
    with pytest.raises(UserError, match=reason):
        jq.load_onnx(external(tmp_path / "m.onnx", "w.bin", offset=offset, length=length))


def test_missing_external_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is missing"):
        jq.load_onnx(external(tmp_path / "m.onnx", "w.bin"))


def test_a_shape_that_its_data_do_not_fill_is_refused(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[1 << 20, 1 << 20], raw_data=b"\0" * 64)
    node = helper.make_node("Identity", ["w"], ["y"])
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", FLOAT, None)])
    graph.initializer.append(tensor)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UserError, match="the file holds 64"):
        jq.load_onnx(tmp_path / "m.onnx")


def test_a_cycle_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    path = save(tmp_path / "m.onnx", nodes, [("x", FLOAT, [2])], [("b", FLOAT, [2])])
    with pytest.raises(UserError, match="cycle"):
        jq.load_onnx(path)


def test_functions_that_call_each_other_are_refused(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function(
            "own",
            name,
            ["a"],
            ["b"],
            [helper.make_node(called, ["a"], ["b"], domain="own")],
            opsets,
        )
        for name, called in (("First", "Second"), ("Second", "First"))
    ]
    ends = [helper.make_tensor_value_info(name, FLOAT, [2]) for name in ("x", "y")]
    node = helper.make_node("First", ["x"], ["y"], domain="own")
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=opsets, functions=functions)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UserError, match="the function (First|Second) calls itself"):
        jq.load_onnx(tmp_path / "m.onnx")


def test_nodes_in_any_order(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["b"], ["y"]), helper.make_node("Neg", ["a"], ["b"])]
    nodes.append(helper.make_node("Neg", ["x"], ["a"]))
    path = save(tmp_path / "m.onnx", nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])])
    model = jq.load_onnx(path)
    found = model.fn(model.params, np.array([-1.0, 2.0], np.float32))["y"]
    assert np.array_equal(np.asarray(found), [0.0, 2.0])


def test_every_damaged_beginning_is_refused_in_one_line(tmp_path: Path) -> None:
    whole = flattening(tmp_path / "m.onnx").read_bytes()
    broken = tmp_path / "broken.onnx"
    for end in [*range(0, 200, 7), *range(200, len(whole) - 200, 1999)]:
        broken.write_bytes(whole[:end])
        with pytest.raises(UserError) as caught:
            jq.load_onnx(broken)
        assert "\n" not in str(caught.value)


def choosing(path: Path) -> Path:
    """A product that no size but 3 allows where `flag` is true, else twice the input."""
    w = numpy_helper.from_array(np.ones((3, 3), np.float32), "w")
    made = [helper.make_tensor_value_info(n, FLOAT, None) for n in ("a", "b")]
    then = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["a"])], "then", [], made[:1], [w]
    )
    other = helper.make_graph([helper.make_node("Add", ["x", "x"], ["b"])], "other", [], made[1:])
    node = helper.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=other)
    ends = [("x", FLOAT, [2, "n"]), ("flag", TensorProto.BOOL, [])], [("y", FLOAT, None)]
    return save(path, [node], *ends)


def test_a_branch_that_cannot_exist_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = choosing(tmp_path / "m.onnx")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    model = jq.load_onnx(path, sizes={"n": 4})
    with caplog.at_level("WARNING", "jq"):
        np.testing.assert_array_equal(model.fn(model.params, x, np.False_)["y"], 2 * x)
    assert "the then branch is left out" in caplog.text
    assert np.isnan(model.fn(model.params, x, np.True_)["y"]).all()
    both = jq.load_onnx(path, sizes={"n": 3})
    for flag, expected in ((True, x[:, :3] @ np.ones((3, 3))), (False, 2 * x[:, :3])):
        y = both.fn(both.params, x[:, :3], np.bool_(flag))["y"]
        np.testing.assert_array_equal(y, expected)
    fixed = jq.load_onnx(path, sizes={"n": 4}, values={"flag": False})
    np.testing.assert_array_equal(fixed.fn(fixed.params, x)["y"], 2 * x)
