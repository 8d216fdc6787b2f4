"""Graphs as exporters write them: what `torch.onnx`, tf2onnx and Paddle2ONNX make of a few lines.

`EXPORTED` is name -> function that gives nodes, inputs, initializers, outputs and the opset. The
graphs are written with the `onnx` helper in the forms that those exporters have: constants as
nodes, chains of `Identity`, computed and masked shapes, loops with conditions, old operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(0)
I64, F32 = np.int64, np.float32


@dataclass
class Graph:
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    made: int = 0

    def given(self, *shape: int, dtype: Any = F32) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = RNG.normal(size=shape).astype(dtype)
        return name

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.arrays)}"
        self.arrays[name] = RNG.normal(size=shape).astype(F32) / 4
        return name

    def const(self, value: Any, dtype: Any = I64) -> str:
        """A node `Constant`, as torch writes it."""
        return self("Constant", value=numpy_helper.from_array(np.asarray(value, dtype)))

    def __call__(self, op: str, *inputs: str, count: int = 1, **attributes: Any) -> Any:
        self.made += 1
        names = [f"/{op}_{self.made}_output_{i}" for i in range(count)]
        self.nodes.append(
            helper.make_node(op, inputs, names, name=f"/{op}_{self.made}", **attributes)
        )
        return names[0] if count == 1 else names

    def model(self) -> onnx.ModelProto:
        ends = [
            helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for k, v in self.inputs.items()
        ]
        made = [helper.make_value_info(y, onnx.TypeProto()) for y in self.outputs]
        arrays = [numpy_helper.from_array(v, k) for k, v in self.arrays.items()]
        graph = helper.make_graph(self.nodes, "exported", ends, made, arrays)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


EXPORTED: dict[str, tuple[int, Callable[[Graph], Any]]] = {}


def exported(name: str, opset: int) -> Callable[[Callable[[Graph], Any]], Callable[[Graph], Any]]:
    def register(function: Callable[[Graph], Any]) -> Callable[[Graph], Any]:
        EXPORTED[name] = opset, function
        return function

    return register


def build(name: str) -> Graph:
    opset, function = EXPORTED[name]
    graph = Graph(opset)
    found = function(graph)
    graph.outputs = [found] if isinstance(found, str) else list(found)
    return graph


def inner(
    nodes: list[onnx.NodeProto], inputs: list[tuple[str, int, Any]], outputs: list[str]
) -> onnx.GraphProto:
    """A sub-graph; inputs are name, type, shape."""
    ends = [helper.make_tensor_value_info(*i) for i in inputs]
    made = [helper.make_value_info(y, onnx.TypeProto()) for y in outputs]
    return helper.make_graph(nodes, "body", ends, made)


@exported("torch: view(x.size(0), -1)", 13)
def view(g: Graph) -> Any:
    x = g.given(2, 3, 4, 5)
    batch = g("Gather", g("Shape", x), g.const(0), axis=0)
    shape = g("Concat", g("Unsqueeze", batch, g.const([0])), g.const([-1]), axis=0)
    return g("Gemm", g("Reshape", x, shape), g.weight(7, 60), g.weight(7), transB=1)


@exported("torch: expand with -1", 13)
def expand(g: Graph) -> Any:
    x = g.given(1, 3, 1)
    wanted = g.const([2, -1, 4])
    ones = g("ConstantOfShape", g.const([3]), value=numpy_helper.from_array(np.ones(1, I64)))
    less = g("Equal", wanted, g("Mul", ones, g.const(-1)))
    return g("Expand", x, g("Where", less, ones, wanted))


@exported("torch: F.pad with computed pads", 11)
def pads(g: Graph) -> Any:
    x, pad = g.given(1, 2, 4, 5), g.const([1, 2, 0, 1])
    size = g("Sub", g("Mul", g.const(4), g.const(2)), g.const(4))
    none = numpy_helper.from_array(np.zeros(1, I64))
    zeros = g("ConstantOfShape", g("Unsqueeze", size, axes=[0]), value=none)
    pairs = g("Reshape", g("Concat", pad, zeros, axis=0), g.const([-1, 2]))
    ends = g.const([-1]), g.const([-9223372036854775807]), g.const([0]), g.const([-1])
    turned = g("Transpose", g("Slice", pairs, *ends), perm=[1, 0])
    flat = g("Cast", g("Reshape", turned, g.const([-1])), to=TensorProto.INT64)
    return g("Pad", x, flat, g.const(0.5, F32), mode="constant")


@exported("torch: interpolate to the size of another", 11)
def interpolate(g: Graph) -> Any:
    x, other = g.given(1, 2, 4, 5), g.given(1, 3, 7, 9)
    ends = g.const([2]), g.const([4]), g.const([0])
    size = g("Slice", g("Shape", other), *ends)
    lead = g("Slice", g("Shape", x), g.const([0]), g.const([2]), g.const([0]))
    sizes = g("Concat", lead, g("Cast", size, to=TensorProto.INT64), axis=0)
    none = g.const([], F32)
    mode = {"coordinate_transformation_mode": "align_corners", "cubic_coeff_a": -0.75}
    return g("Resize", x, none, none, sizes, mode="linear", nearest_mode="floor", **mode)


@exported("torch: Upsample of opset 9, scales from a constant", 9)
def upsample(g: Graph) -> Any:
    return g("Upsample", g.given(1, 2, 4, 5), g.const([1, 1, 2, 2], F32), mode="nearest")


@exported("torch: Upsample of opset 7, scales as an attribute", 7)
def upsample_old(g: Graph) -> Any:
    return g("Upsample", g.given(1, 2, 4, 5), scales=[1.0, 1.0, 2.0, 3.0], mode="nearest")


@exported("torch: weights shared through Identity", 13)
def shared(g: Graph) -> Any:
    w, x = g.weight(6, 6), g.given(3, 6)
    again = g("Identity", g("Identity", w))
    return g("MatMul", g("Relu", g("MatMul", x, w)), again)


@exported("torch: LSTM with zeros as its state", 14)
def lstm(g: Graph) -> Any:
    x = g.given(5, 2, 4)
    size = g("Gather", g("Shape", x), g.const(1), axis=0)
    shape = g("Concat", g.const([2]), g("Unsqueeze", size, g.const([0])), g.const([3]), axis=0)
    state = g("Expand", g.const(0, F32), shape)
    parts = [g.weight(2, 12, 4), g.weight(2, 12, 3), g.weight(2, 24)]
    ys = g("LSTM", x, *parts, "", state, state, count=3, hidden_size=3, direction="bidirectional")
    y = g("Transpose", ys[0], perm=[0, 2, 1, 3])
    return g("Reshape", y, g.const([0, 0, -1])), ys[1]


@exported("torch: GRU", 14)
def gru(g: Graph) -> Any:
    parts = [g.weight(1, 9, 4), g.weight(1, 9, 3), g.weight(1, 18)]
    y, _ = g("GRU", g.given(5, 2, 4), *parts, "", g.given(1, 2, 3), count=2, hidden_size=3,
             linear_before_reset=1)  # fmt: skip
    return g("Squeeze", y, g.const([1]))


@exported("torch: attention with a mask of -inf", 14)
def attention(g: Graph) -> Any:
    q, k = g.given(2, 3, 4, 8), g.given(2, 3, 4, 8)
    sizes = g("Slice", g("Shape", q), g.const([2]), g.const([3]), g.const([0]))
    square = g("Concat", sizes, sizes, axis=0)
    seen = g("Trilu", g("Expand", g.const(1.0, F32), square), upper=0)
    infinite = g("ConstantOfShape", square, value=numpy_helper.from_array(np.full(1, -np.inf, F32)))
    mask = g("Where", g("Cast", seen, to=TensorProto.BOOL), g.const(0.0, F32), infinite)
    root = g("Sqrt", g.const(8.0, F32))
    scores = g("MatMul", g("Div", q, root), g("Transpose", k, perm=[0, 1, 3, 2]))
    return g("MatMul", g("Softmax", g("Add", scores, mask), axis=-1), k)


@exported("torch: GELU, LayerNorm and RMSNorm in pieces", 13)
def pieces(g: Graph) -> Any:
    x = g.given(2, 5, 8)
    half = g("Mul", x, g("Add", g("Erf", g("Div", x, g.const(2**0.5, F32))), g.const(1.0, F32)))
    y = g("Mul", half, g.const(0.5, F32))
    centred = g("Sub", y, g("ReduceMean", y, axes=[-1]))
    power = g("ReduceMean", g("Pow", centred, g.const(2.0, F32)), axes=[-1])
    z = g("Div", centred, g("Sqrt", g("Add", power, g.const(1e-5, F32))))
    square = g("ReduceMean", g("Mul", z, z), axes=[-1])
    return g("Mul", g("Mul", z, g("Reciprocal", g("Sqrt", square))), g.weight(8))


@exported("torch: rotary positions from cumulated masks", 14)
def rotary(g: Graph) -> Any:
    x, mask = g.given(1, 4, 8), g.const([[0, 1, 1, 1]])
    at = g("Sub", g("CumSum", mask, g.const(1)), g.const(1))
    angle = g(
        "Mul",
        g("Unsqueeze", g("Cast", at, to=1), g.const([2])),
        g.const([[[1, 0.1, 0.01, 0.001]]], F32),
    )
    wide = g("Concat", angle, angle, axis=-1)
    first, second = g("Split", x, g.const([4, 4]), count=2, axis=-1)
    turned = g("Concat", g("Neg", second), first, axis=-1)
    return g("Add", g("Mul", x, g("Cos", wide)), g("Mul", turned, g("Sin", wide)))


@exported("torch: a slice assigned by ScatterND", 16)
def assigned(g: Graph) -> Any:
    x = g.given(4, 3)
    length = g("Gather", g("Shape", x), g.const(0), axis=0)
    rows = g("Range", g.const(0), length, g.const(2))
    places = g("Unsqueeze", rows, g.const([1]))
    return g("ScatterND", x, places, g.given(2, 3))


@exported("torch: a list of splits, stacked", 13)
def stacked(g: Graph) -> Any:
    parts = g("SplitToSequence", g.given(4, 3), axis=0, keepdims=0)
    some = [g("SequenceAt", parts, g.const(i)) for i in (0, 2)]
    again = g("SequenceConstruct", *some)
    return g("ConcatFromSequence", again, axis=0, new_axis=1)


@exported("torch: a scripted loop", 13)
def loop(g: Graph) -> Any:
    body = inner(
        [
            helper.make_node("Gather", ["w", "i"], ["row"], axis=0),
            helper.make_node("Add", ["h", "row"], ["sum"]),
            helper.make_node("Tanh", ["sum"], ["next"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        [("i", TensorProto.INT64, []), ("go", TensorProto.BOOL, []), ("h", 1, [3])],
        ["on", "next", "sum"],
    )
    g.arrays["w"] = RNG.normal(size=(4, 3)).astype(F32)
    return g("Loop", g.const(4), g.const(True, bool), g.given(3), count=2, body=body)


@exported("torch: a branch on the number of axes", 13)
def branch(g: Graph) -> Any:
    x = g.given(2, 1, 3)
    squeeze = helper.make_node("Squeeze", [x, "one"], ["a"])
    keep = helper.make_node("Identity", [x], ["b"])
    g.arrays["one"] = np.array([1], I64)
    rank = g("Equal", g("Gather", g("Shape", x), g.const(1), axis=0), g.const(1))
    branches = {"then_branch": inner([squeeze], [], ["a"]), "else_branch": inner([keep], [], ["b"])}
    return g("If", rank, **branches)


@exported("torch dynamo: ReduceMean, Split and Clip by inputs", 18)
def newer(g: Graph) -> Any:
    x = g.given(2, 6, 4)
    mean = g("ReduceMean", x, g.const([-1, 1]), keepdims=1, noop_with_empty_axes=0)
    parts = g("Split", g("Sub", x, mean), count=3, axis=1, num_outputs=3)
    low = g("CastLike", g.const(-0.5, np.float64), x)
    return g("Clip", g("Sum", *parts), low, "")


@exported("torch: BatchNorm of opset 7, Dropout, Flatten", 7)
def old(g: Graph) -> Any:
    x = g("Conv", g.given(1, 2, 6, 6), g.weight(4, 2, 3, 3), kernel_shape=[3, 3], pads=[1] * 4)
    g.arrays["var"] = np.abs(RNG.normal(size=4)).astype(F32) + 1
    x = g("BatchNormalization", x, g.weight(4), g.weight(4), g.weight(4), "var", momentum=0.9)
    x = g("AveragePool", g("Relu", x), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    return g("Flatten", g("Dropout", x, ratio=0.5), axis=1)


@exported("tf2onnx: a convolution of NHWC with SAME", 9)
def nhwc(g: Graph) -> Any:
    x = g("Transpose", g.given(1, 7, 6, 3), perm=[0, 3, 1, 2])
    x = g("Conv", x, g.weight(4, 3, 3, 3), g.weight(4), auto_pad="SAME_UPPER", strides=[2, 2])
    x = g("Max", g("Min", x, g.const(6.0, F32)), g.const(0.0, F32))
    x = g("Transpose", x, perm=[0, 2, 3, 1])
    return g("Squeeze", g("ReduceMean", x, axes=[1, 2], keepdims=1), axes=[1, 2])


@exported("tf2onnx: strided_slice of a shape", 9)
def strided(g: Graph) -> Any:
    x = g.given(2, 3, 4)
    shape = g("Cast", g("Shape", x), to=TensorProto.INT32)
    wide = g("Cast", shape, to=TensorProto.INT64)
    one = g("Squeeze", g("Slice", wide, axes=[0], starts=[0], ends=[1]), axes=[0])
    parts = [g("Unsqueeze", g("Cast", one, to=TensorProto.INT64), axes=[0]), g.const([12])]
    return g("Reshape", x, g("Concat", *parts, axis=0))


@exported("tf2onnx: while_loop with a condition and a TensorArray", 11)
def while_loop(g: Graph) -> Any:
    body = inner(
        [
            helper.make_node("Mul", ["v", "v"], ["sq"]),
            helper.make_node("Add", ["n", "one"], ["more"]),
            helper.make_node("Less", ["more", "limit"], ["on"]),
        ],
        [("i", TensorProto.INT64, []), ("c", TensorProto.BOOL, []), ("n", 6, []), ("v", 1, [3])],
        ["on", "more", "sq", "v"],
    )
    g.arrays |= {"one": np.array(1, np.int32), "limit": np.array(3, np.int32)}
    start = g.const(0, np.int32)
    go = g("Less", start, "limit")
    return g("Loop", g.const(9223372036854775807), go, start, g.given(3), count=3, body=body)


@exported("Paddle2ONNX: Slice, Clip and HardSwish in int32", 11)
def paddle(g: Graph) -> Any:
    x = g.given(1, 4, 6, 6)
    ends = [g.const(v, np.int32) for v in ([1], [3], [1])]
    y = g("Slice", x, *ends)
    gate = g("Clip", g("Add", y, g.const(3.0, F32)), g.const(0.0, F32), g.const(6.0, F32))
    y = g("Div", g("Mul", y, gate), g.const(6.0, F32))
    mean = g("GlobalAveragePool", y)
    return g("Mul", y, g("HardSigmoid", mean, alpha=0.2, beta=0.5))


@exported("Softmax of opset 11 on several axes", 11)
def softmax(g: Graph) -> Any:
    x = g.given(2, 3, 4)
    return g("Softmax", x, axis=1), g("LogSoftmax", x), g("Hardmax", x, axis=1)


@exported("float16 inside, float32 outside", 13)
def half(g: Graph) -> Any:
    x = g("Cast", g.given(2, 8), to=TensorProto.FLOAT16)
    y = g("MatMul", x, g("Cast", g.weight(8, 3), to=TensorProto.FLOAT16))
    return g("Cast", y, to=TensorProto.FLOAT)


@exported("YOLO: grids, anchors and the best of each box", 12)
def yolo(g: Graph) -> Any:
    x = g.given(1, 14, 4, 4)
    y = g("Transpose", g("Reshape", x, g.const([1, 2, 7, 4, 4])), perm=[0, 1, 3, 4, 2])
    parts = g("Split", g("Sigmoid", y), count=3, axis=4, split=[2, 2, 3])
    grid = g.const(np.stack(np.meshgrid(np.arange(4), np.arange(4)), -1)[None, None], F32)
    xy = g("Mul", g("Add", g("Mul", parts[0], g.const(2.0, F32)), grid), g.const(8.0, F32))
    wh = g(
        "Mul",
        g("Pow", g("Mul", parts[1], g.const(2.0, F32)), g.const(2.0, F32)),
        g.weight(1, 2, 1, 1, 2),
    )
    boxes = g("Reshape", g("Concat", xy, wh, parts[2], axis=4), g.const([1, -1, 7]))
    scores = g("Slice", boxes, g.const([5]), g.const([7]), g.const([2]), g.const([1]))
    best = g("ArgMax", scores, axis=2, keepdims=0)
    top, places = g(
        "TopK", g("ReduceMax", scores, axes=[2], keepdims=0), g.const([5]), count=2, axis=1
    )
    wide = g("Expand", g("Unsqueeze", places, axes=[2]), g.const([1, 5, 7]))
    return boxes, best, top, g("GatherElements", boxes, wide, axis=1)
