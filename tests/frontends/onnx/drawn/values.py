"""Steps that compute: products, functions, reductions, recurrence."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.frontends.onnx.drawn.graph import Graph, on, over

# Functions of one number, and the opset that each came with.
FUNCTIONS = {
    **dict.fromkeys(["Relu", "Sigmoid", "LeakyRelu", "Tanh", "HardSigmoid", "Elu", "Selu"], 11),
    **dict.fromkeys(["Softplus", "Softsign", "Erf", "Abs", "Neg"], 11),
    "HardSwish": 14,
    "Mish": 18,
    "Gelu": 20,
}
REDUCTIONS = {
    "ReduceSum": 13,
    **dict.fromkeys(["ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2"], 18),
    **dict.fromkeys(["ReduceSumSquare", "ReduceLogSumExp"], 18),
}


@on(2, 3, 4)
def product(g: Graph, x: str, shape: Any) -> None:
    inputs = [x, g.const(shape[-1], g.of(8, 12))]
    (y,) = g.add("MatMul", inputs) or [""]
    if y and g.chance(0.4):
        g.add("Add", [y, g.const(g.shapes[y][-1])])


@on(2, 3)
def product_of_activations(g: Graph, x: str, shape: Any) -> None:
    last = len(shape) - 1
    turned = g.add("Transpose", [x], perm=[*range(last - 1), last, last - 1])
    g.add("MatMul", [x, *turned])


@on(2)
def gemm(g: Graph, x: str, shape: Any) -> None:
    how = {"transB": 1} if g.chance(0.6) else {}
    weight = g.const(10, shape[1]) if how else g.const(shape[1], 10)
    how |= {"alpha": 0.5, "beta": 2.0} if g.chance(0.2) else {}
    g.add("Gemm", [x, weight] + ([g.const(10)] if g.chance(0.8) else []), **how)


@on(3, since=12)
def einsum(g: Graph, x: str, shape: Any) -> None:
    equation = g.of("abc,cd->abd", "abc,adc->abd", "abc,cd->bad", "abc->ac")
    other = {"abc,cd": [g.const(shape[2], 6)], "abc,ad": [x], "abc->a": []}[equation[:6]]
    g.add("Einsum", [x, *other], equation=equation)


@on()
def function(g: Graph, x: str, shape: Any) -> None:
    g.add(g.of(*[op for op, since in FUNCTIONS.items() if since <= g.opset]), [x])


@on()
def clip(g: Graph, x: str, shape: Any) -> None:
    low, high = (g.fixed(v, np.float32) for v in g.of((0, 6), (-1, 1), (0, 1)))
    g.add("Clip", [x, low] if g.chance(0.2) else [x, low, high])


@on()
def slopes(g: Graph, x: str, shape: Any) -> None:
    g.add("PRelu", [x, g.const(shape[-1])])


@on()
def of_two(g: Graph, x: str, shape: Any) -> None:
    others = [n for n, s in g.shapes.items() if s == shape]
    pair = [x, g.of(*others) if g.chance(0.6) else g.const(shape[-1])]
    g.add(g.of("Add", "Add", "Mul", "Mul", "Sub", "Max", "Min"), pair[:: g.of(1, -1)])


@on()
def quotient(g: Graph, x: str, shape: Any) -> None:
    g.add("Div", [x, g.fixed(g.rng.uniform(0.5, 2, shape[-1:]).astype(np.float32))])


@on()
def softmax(g: Graph, x: str, shape: Any) -> None:
    g.add(g.of("Softmax", "Softmax", "LogSoftmax"), [x], axis=int(g.of(-1, -1, 1 % len(shape))))


@on(2, 3, since=17)
def layer_norm(g: Graph, x: str, shape: Any) -> None:
    g.add("LayerNormalization", [x, g.const(shape[-1]), g.const(shape[-1])], axis=-1)


@on()
def reduced(g: Graph, x: str, shape: Any) -> None:
    op = g.of(*REDUCTIONS)
    axes = sorted({int(a) for a in g.rng.integers(len(shape), size=g.of(1, 2))})
    over(g, op, x, axes, REDUCTIONS[op], keepdims=g.of(0, 1))


@on()
def running_sum(g: Graph, x: str, shape: Any) -> None:
    axis = g.fixed(int(g.rng.integers(len(shape))), np.int64)
    g.add("CumSum", [x, axis], exclusive=g.of(0, 1), reverse=g.of(0, 1))


@on(3)
def recurrent(g: Graph, x: str, shape: Any) -> None:
    op, width = g.of("LSTM", "LSTM", "GRU", "RNN"), 4
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op] * width
    direction = g.of("forward", "reverse", "bidirectional")
    ways = 1 + (direction == "bidirectional")
    inputs = [x, g.const(ways, gates, shape[2]), g.const(ways, gates, width)]
    inputs += [g.const(ways, 2 * gates)] if g.chance(0.7) else []
    how = {"linear_before_reset": 1} if op == "GRU" and g.chance(0.5) else {}
    found = g.add(op, inputs, 1, hidden_size=width, direction=direction, **how)
    if found and g.chance(0.7):
        (turned,) = g.add("Transpose", found, perm=[0, 2, 1, 3])
        g.add("Reshape", [turned, g.fixed([0, 0, -1], np.int64)])


@on(3)
def attention(g: Graph, x: str, shape: Any) -> None:
    """As ONNX Runtime's optimizer fuses it."""
    inputs = [x, g.const(shape[2], 24), g.const(24)]
    to = (*shape[:2], 8)
    g.add("Attention", inputs, domain="com.microsoft", shape=to, num_heads=2)
