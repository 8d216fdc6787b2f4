"""Files that other tools write in forms that exporters of today do not have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import jq
from jq.base.errors import UserError
from tests.frontends.onnx.against_ort import by_onnxruntime
from tests.support.programs import evaluated

RNG = np.random.default_rng(5)
Arrays = dict[str, np.ndarray]
Made = tuple[onnx.ModelProto, Arrays]


def real(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def model(
    nodes: list[Any], inputs: Arrays, outputs: str, arrays: Arrays, opset: int, ir_version: int = 8
) -> onnx.ModelProto:
    """As the format was up to version 3 of it, initializers are inputs as well."""
    given = inputs | arrays if ir_version < 4 else inputs
    ends = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in given.items()
    ]
    made = [helper.make_value_info(name, onnx.TypeProto()) for name in outputs.split()]
    tensors = [numpy_helper.from_array(v, k) for k, v in arrays.items()]
    graph = helper.make_graph(nodes, "g", ends, made, tensors)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), **attributes)


def caffe() -> Made:
    """Version 7 of the operators, with initializers among the inputs."""
    arrays = {"w": real(4, 3, 3, 3), "b": real(4), "m": real(4), "v": np.abs(real(4)) + 1}
    arrays |= {"shape": np.array([2, -1]), "k": real(5, 64)}
    nodes = [
        node("Conv", "x w b", "c", kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1], group=1),
        node("BatchNormalization", "c b b m v", "n", momentum=0.9),
        node("MaxPool", "n", "p", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1]),
        node("LRN", "p", "l", size=3),
        node("Dropout", "l", "d mask", ratio=0.5),
        node("Reshape", "d shape", "f"),
        node("Gemm", "f k o", "y", transB=1),
    ]
    x = {"x": real(2, 3, 8, 8)}
    return model(nodes, x, "y", arrays | {"o": real(5)}, 7, 3), x


def sparse() -> Made:
    """A sparse constant, and a sparse initializer whose indices are by axis."""
    parts = [[real(2), np.array([1, 4])], [real(2), np.array([[0, 1], [2, 3]])]]
    made = [
        helper.make_sparse_tensor(
            numpy_helper.from_array(v, name), numpy_helper.from_array(i, f"{name}i"), shape
        )
        for (v, i), name, shape in zip(parts, "cw", ([2, 3], [3, 4]), strict=True)
    ]
    nodes = [node("Constant", "", "k", sparse_value=made[0])]
    nodes += [node("Add", "x k", "a"), node("MatMul", "a w", "y")]
    x = {"x": real(2, 3)}
    found = model(nodes, x, "y", {}, 13)
    found.graph.sparse_initializer.append(made[1])
    return found, x


def loop() -> Made:
    """A number of trips and no condition; branches inside of it."""
    ends = [("i", TensorProto.INT64, []), ("c", TensorProto.BOOL, []), ("v", 1, [3])]
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(op, "v", name)], name, [], [helper.make_value_info(name, onnx.TypeProto())]
        )
        for name, op in (("then", "Neg"), ("else", "Exp"))
    }
    nodes = [
        node("Mod", "i two", "odd"),
        node("Cast", "odd", "is", to=TensorProto.BOOL),
        node("If", "is", "next", **branches),
        node("Identity", "c", "on"),
        node("Identity", "next", "seen"),
    ]
    made = [helper.make_value_info(name, onnx.TypeProto()) for name in ("on", "next", "seen")]
    body = helper.make_graph(
        nodes, "body", [helper.make_tensor_value_info(*end) for end in ends], made
    )
    x, arrays = {"x": real(3)}, {"trips": np.array(4), "two": np.array(2)}
    return model([node("Loop", "trips - x", "y ys", body=body)], x, "y ys", arrays, 13), x


def counted(grows: bool = False) -> Made:
    """`while i < n` over the rows of a series, as Keras' recurrent layers are exported; `n` is the
    number of rows. What is carried may have another shape after each trip."""
    trips = 70 if grows else 200
    ends = [("t", TensorProto.INT64, []), ("c", TensorProto.BOOL, []), ("i", TensorProto.INT64, [])]
    ends += [("h", 1, None if grows else [4])]
    nodes = [
        node("Gather", "x i", "row", axis=0),
        node("Concat", "h row", "next", axis=0) if grows else node("Tanh", "sum", "next"),
        node("Add", "i one", "after"),
        node("Less", "after n", "on"),
        node("Identity", "row" if grows else "next", "seen"),
    ]
    nodes[1:1] = [] if grows else [node("Add", "h row", "sum")]
    made = [helper.make_value_info(n, onnx.TypeProto()) for n in ("on", "after", "next", "seen")]
    inputs = [helper.make_tensor_value_info(*end) for end in ends]
    body = helper.make_graph(nodes, "body", inputs, made)
    x = {"x": real(trips, 4)}
    around = [
        node("Shape", "x", "shape"),
        node("Gather", "shape zero", "n", axis=0),
        node("Less", "zero n", "first"),
        node("Loop", "- first zero h0", "last y ys", body=body),
    ]
    arrays = {"zero": np.array(0), "one": np.array(1), "h0": real(4)}
    return model(around, x, "last y ys", arrays, 13), x


def growing() -> Made:
    return counted(grows=True)


def long() -> Made:
    """More trips than are ever unrolled or counted, and a condition that never changes."""
    ends = [("i", TensorProto.INT64, []), ("c", TensorProto.BOOL, []), ("v", 1, [3])]
    nodes = [node("Sin", "v", "next"), node("Identity", "c", "on"), node("Identity", "v", "seen")]
    made = [helper.make_value_info(name, onnx.TypeProto()) for name in ("on", "next", "seen")]
    inputs = [helper.make_tensor_value_info(*end) for end in ends]
    body = helper.make_graph(nodes, "body", inputs, made)
    x = {"x": real(3)}
    arrays = {"trips": np.array(5000), "always": np.array(True)}
    loop = node("Loop", "trips always x", "y ys", body=body)
    return model([loop], x, "y ys", arrays, 13), x


def nearest() -> Made:
    """A scale that is no float: 6 / 1.2 is the old element 5, in float32 alone."""
    x = {"x": real(1, 1, 10, 10)}
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    resize = node("Resize", "x - s", "y", nearest_mode="floor", **how)
    return model([resize], x, "y", {"s": np.float32([1, 1, 1.2, 1.7])}, 13), x


def smaller() -> Made:
    """Version 10 of the operator takes the next element where an image becomes smaller."""
    x = {"x": real(1, 1, 8, 10)}
    resize = node("Resize", "x s", "y", mode="nearest")
    return model([resize], x, "y", {"s": np.float32([1, 1, 0.6, 1.6])}, 10), x


def cut() -> Made:
    """An image of integers between whose elements there are others; they are cut, not rounded."""
    x = {"x": RNG.integers(0, 256, (1, 1, 6, 7)).astype(np.uint8)}
    resize = node("Resize", "x - s", "y", mode="linear")
    return model([resize], x, "y", {"s": np.float32([1, 1, 2, 4])}, 13), x


def _sampled(padding: str) -> Made:
    x = {"x": real(1, 2, 4, 5), "g": real(1, 6, 7, 2)}
    return model(
        [node("GridSample", "x g", "y", mode="bicubic", padding_mode=padding)], x, "y", {}, 16
    ), x


def at_the_border() -> Made:
    """Places between the last centre and the border, and beyond it."""
    return _sampled("border")


def reflected() -> Made:
    return _sampled("reflection")


def packed_table() -> Made:
    """Numbers of 4 bits without zero points begin at 0; bytes of two have 0 in the middle."""
    data = RNG.integers(0, 16, (10, 64))
    take = {"domain": "com.microsoft", "block_size": 32, "gather_axis": 0, "quantize_axis": 1}
    nodes = [node("GatherBlockQuantized", "d i s", "y", **take)]
    x = {"i": np.array([[0, 9, 3], [1, 1, 2]])}
    found = model(nodes, x, "y", {"s": real(10, 2)}, 21, 10)
    found.graph.initializer.append(
        helper.make_tensor("d", TensorProto.UINT4, [10, 64], data.ravel())
    )
    found.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return found, x


def zero_points() -> Made:
    """Weights with zero points of their own, by channel, as TFLite's converters write them."""
    codes, scale = RNG.integers(0, 256, (6, 5)).astype(np.uint8), np.abs(real(5)) + np.float32(0.1)
    arrays = {"k": codes, "s": scale, "z": RNG.integers(90, 150, 5).astype(np.uint8)}
    arrays |= {"xs": np.float32(0.03), "xz": np.uint8(125)}
    nodes = [
        node("QuantizeLinear", "x xs xz", "q"),
        node("DequantizeLinear", "q xs xz", "d"),
        node("DequantizeLinear", "k s z", "w", axis=1),
        node("MatMul", "d w", "y"),
    ]
    x = {"x": real(3, 6)}
    return model(nodes, x, "y", {k: np.asarray(v) for k, v in arrays.items()}, 13), x


def lengths() -> Made:
    """Sequences of different lengths, peepholes, both directions."""
    arrays = {"w": real(2, 12, 4), "r": real(2, 12, 3), "b": real(2, 24), "p": real(2, 9)}
    x = {"x": real(5, 3, 4), "n": np.array([5, 0, 3], np.int32)}
    lstm = node("LSTM", "x w r b n - - p", "y h c", hidden_size=3, direction="bidirectional")
    return model([lstm], x, "y h c", arrays, 14), x


def names() -> Made:
    """Names with everything that programs and shells take for something else."""
    first, second = 'in put:0/"a"\\n%', "größe;}{"
    nodes = [helper.make_node("Add", [first, "w@0"], [second])]
    nodes.append(helper.make_node("Relu", [second], ["y"]))
    x = {first: real(2, 3)}
    return model(nodes, x, "y", {"w@0": real(3)}, 13), x


FILES: list[Callable[[], Made]] = [
    caffe, sparse, loop, counted, growing, long, nearest, smaller, cut, at_the_border, reflected,
    packed_table, zero_points, lengths, names,
]  # fmt: skip


@pytest.mark.parametrize("make", FILES, ids=lambda f: f.__name__)
def test_it_is_computed_as_onnxruntime_does(make: Callable[[], Made], tmp_path: Path) -> None:
    made, inputs = make()
    onnx.save(made, tmp_path / "m.onnx")
    program = jq.trace(jq.load_onnx(tmp_path / "m.onnx")).program
    ours = evaluated(program, *inputs.values())
    theirs = by_onnxruntime(tmp_path / "m.onnx", *inputs.values())
    for y, wanted in zip(ours, theirs, strict=True):
        assert (y.dtype, y.shape) == (wanted.dtype, wanted.shape)
        step = 64 * 2**-24  # sums of at most 64 products
        np.testing.assert_allclose(y, wanted, rtol=step, atol=step * np.abs(wanted).max())


def test_operators_before_version_7_are_refused(tmp_path: Path) -> None:
    """`Add` of version 6 aligned axes by an attribute; `Relu` has been the same ever since."""
    x = {"x": real(3, 3)}
    add = node("Add", "x w", "y", axis=0, broadcast=1)
    onnx.save(model([add], x, "y", {"w": real(3)}, 6, 3), tmp_path / "add.onnx")
    with pytest.raises(UserError, match=r"ai.onnx.Add \(opset 6") as caught:
        jq.load_onnx(tmp_path / "add.onnx")
    assert "version_converter" in str(caught.value.hint)
    onnx.save(model([node("Relu", "x", "y")], x, "y", {}, 6, 3), tmp_path / "relu.onnx")
    assert jq.load_onnx(tmp_path / "relu.onnx").input_names == ["x"]


@pytest.mark.parametrize(
    ("places", "shape", "reason"),
    [([1, 9], [2, 3], "indices"), ([-1, 0], [2, 3], "indices"), ([0, 1], [1 << 20] * 2, "large")],
)
def test_lying_sparse_tensors_are_refused(
    tmp_path: Path, places: list[int], shape: list[int], reason: str
) -> None:
    values, indices = (numpy_helper.from_array(np.asarray(v), "w") for v in (real(2), places))
    x = {"x": real(2, 3)}
    made = model([node("Add", "x w", "y")], x, "y", {}, 13)
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, shape))
    onnx.save(made, tmp_path / "m.onnx")
    with pytest.raises(UserError, match=reason):
        jq.load_onnx(tmp_path / "m.onnx")


@pytest.mark.parametrize("what", ["initializer w", "function d.F "])
def test_two_of_one_name_are_refused(what: str, tmp_path: Path) -> None:
    """One of them would be taken, without a word about which."""
    x = {"x": real(2, 4)}
    made = model([node("MatMul", "x w", "y")], x, "y", {"w": real(4, 4)}, 17)
    if what.startswith("function"):
        opset = [helper.make_opsetid("", 17)]
        for op in ("Relu", "Neg"):
            body = [helper.make_node(op, ["a"], ["b"])]
            made.functions.append(helper.make_function("d", "F", ["a"], ["b"], body, opset))
    else:
        made.graph.initializer.append(numpy_helper.from_array(real(4, 4), "w"))
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    with pytest.raises(UserError, match=f"the model has the '{what}' twice"):
        jq.trace(path)
