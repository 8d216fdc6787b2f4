"""Tidies an ONNX graph that came from JAX, so that other runtimes recognise what it computes.

An exporter of JAX writes products as `Einsum`, norms as sums, activations as `Max`; the fusions of
ONNX Runtime and OpenVINO, and their quantizers, look for what PyTorch's exporter writes:

    Einsum "abc,cd->abd"                    -> MatMul
    Einsum "bqnd,bknd->bnqk"                -> Transpose, Transpose, MatMul
    ReduceSum, Reshape to the kept axes     -> ReduceSum with keepdims
    ReduceSumSquare                         -> Pow 2, ReduceSum
    ReduceSum / size of the axes            -> ReduceMean
    ReduceMean over an image                -> GlobalAveragePool, Flatten
    x * (1 / Sqrt(v))                       -> x / Sqrt(v)
    x - constant                            -> x + -constant
    Expand in front of an elementwise op    -> the op broadcasts by itself
    a constant [1, 1, n] of such an op      -> [n]
    Max(x, 0), Min(Relu(x), 6)              -> Relu, Clip
    MaxPool on NHWC with two axes added     -> MaxPool on NCHW
    Gemm with a zero bias, Add              -> Gemm
    Gemm with a zero bias                   -> MatMul
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx

from peers.onnx_graph import Graph, Rule, attribute

BROADCASTING = {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Where", "Less", "Greater"}
Nodes = list[onnx.NodeProto] | None


def tidy(model: onnx.ModelProto) -> onnx.ModelProto:
    """Applies every rewriting until nothing changes; constants must have been folded."""
    while True:
        graph = Graph(model)
        changed = [graph.apply(rule) for rule in RULES]
        model = graph.model
        if not any(changed):
            return model


def axes(graph: Graph, node: onnx.NodeProto) -> list[int] | None:
    """The axes of a reduction, not negative."""
    given = attribute(node, "axes")
    if given is None and len(node.input) > 1:
        value = graph.constant(node.input[1])
        given = None if value is None else value.tolist()
    rank = len(graph.shapes.get(node.input[0], ()))
    return None if given is None or not rank else sorted(a % rank for a in given)


def products(graph: Graph, node: onnx.NodeProto) -> Nodes:
    """Einsum of two operands, no letter twice in one of them, as MatMul."""
    if node.op_type != "Einsum" or len(node.input) != 2:
        return None
    operands, out = attribute(node, "equation").decode().replace(" ", "").split("->")
    left, right = operands.split(",")
    if "." in operands or any(len(set(t)) < len(t) for t in (left, right, out)):
        return None
    batch = [c for c in out if c in left and c in right]
    summed = [c for c in left if c in right and c not in out]
    rows, columns = ([c for c in out if c in t and c not in batch] for t in (left, right))
    if len(summed) != 1 or len(columns) > 1 or (batch and len(rows) > 1):
        return None
    if len(batch) + len(rows) + 1 != len(left) or len(batch) + len(columns) + 1 != len(right):
        return None
    nodes: list[onnx.NodeProto] = []

    def ordered(name: str, have: str, want: Sequence[str]) -> str:
        if list(have) == list(want):
            return name
        nodes.append(graph.new("Transpose", [name], perm=[have.index(c) for c in want]))
        return str(nodes[-1].output[0])

    a = ordered(node.input[0], left, [*batch, *rows, *summed])
    b = ordered(node.input[1], right, [*batch, *summed, *columns])
    have = "".join([*batch, *rows, *columns])
    if have == out:
        return [*nodes, graph.new("MatMul", [a, b], node.output[0])]
    nodes.append(graph.new("MatMul", [a, b]))
    perm = [have.index(c) for c in out]
    return [*nodes, graph.new("Transpose", [nodes[-1].output[0]], node.output[0], perm=perm)]


def kept_axes(graph: Graph, node: onnx.NodeProto) -> Nodes:
    """A reduction whose result is only reshaped to what keepdims would have given."""
    if node.op_type != "Reshape":
        return None
    reduction = graph.maker.get(node.input[0])
    if reduction is None or reduction.op_type not in ("ReduceSum", "ReduceSumSquare", "ReduceMax"):
        return None
    reduced, shape = axes(graph, reduction), graph.shapes.get(reduction.input[0])
    if attribute(reduction, "keepdims", 1) or reduced is None or shape is None:
        return None
    kept = tuple(1 if i in reduced else n for i, n in enumerate(shape))
    if graph.shapes.get(node.output[0]) != kept:
        return None
    inputs = [reduction.input[0], graph.add_constant(np.array(reduced, np.int64))]
    return [graph.new(reduction.op_type, inputs, node.output[0], keepdims=1)]


def squares(graph: Graph, node: onnx.NodeProto) -> Nodes:
    if node.op_type != "ReduceSumSquare":
        return None
    power = graph.new("Pow", [node.input[0], graph.add_constant(np.array(2, np.float32))])
    inputs = [power.output[0], *node.input[1:]]
    keep = attribute(node, "keepdims", 1)
    return [power, graph.new("ReduceSum", inputs, node.output[0], keepdims=keep)]


def means(graph: Graph, node: onnx.NodeProto) -> Nodes:
    if node.op_type not in ("Div", "Mul"):
        return None
    total, factor = graph.maker.get(node.input[0]), graph.scalar(node.input[1])
    if total is None or total.op_type != "ReduceSum" or not factor:
        return None
    reduced, shape = axes(graph, total), graph.shapes.get(total.input[0])
    if reduced is None or shape is None:
        return None
    size = math.prod(shape[i] for i in reduced)
    if not math.isclose(size, factor if node.op_type == "Div" else 1 / factor, rel_tol=1e-6):
        return None
    keep = attribute(total, "keepdims", 1)
    return [graph.new("ReduceMean", list(total.input), node.output[0], keepdims=keep)]


def quotients(graph: Graph, node: onnx.NodeProto) -> Nodes:
    if node.op_type != "Mul":
        return None
    for i in (0, 1):
        inverse = graph.maker.get(node.input[i])
        if inverse is None:
            continue
        if inverse.op_type == "Div" and graph.scalar(inverse.input[0]) == 1:
            root = graph.maker.get(inverse.input[1])
            if root is not None and root.op_type == "Sqrt":
                return [graph.new("Div", [node.input[1 - i], inverse.input[1]], node.output[0])]
    return None


def broadcasts(graph: Graph, node: onnx.NodeProto) -> Nodes:
    """An elementwise op reads in front of an Expand where the result's shape stays the same."""
    if node.op_type not in BROADCASTING or node.output[0] not in graph.shapes:
        return None
    inputs = []
    for name in node.input:
        maker = graph.maker.get(name)
        inputs.append(maker.input[0] if maker is not None and maker.op_type == "Expand" else name)
    if inputs == list(node.input) or any(name not in graph.shapes for name in inputs):
        return None
    shape = np.broadcast_shapes(*(graph.shapes[name] for name in inputs))
    if shape != graph.shapes[node.output[0]]:
        return None
    return [graph.new(node.op_type, inputs, node.output[0])]


def short_constants(graph: Graph, node: onnx.NodeProto) -> Nodes:
    """Norms and biases are recognised by constants of one axis."""
    if node.op_type not in BROADCASTING or node.output[0] not in graph.shapes:
        return None
    rank, inputs = len(graph.shapes[node.output[0]]), []
    for name in node.input:
        value = graph.constant(name)
        others = [len(graph.shapes.get(n, ())) for n in node.input if n != name]
        if (
            value is not None
            and value.ndim > 1
            and value.size == value.shape[-1]
            and rank in others
        ):
            name = graph.add_constant(value.reshape(-1))
        inputs.append(name)
    return None if inputs == list(node.input) else [graph.new(node.op_type, inputs, node.output[0])]


def differences(graph: Graph, node: onnx.NodeProto) -> Nodes:
    value = graph.constant(node.input[1]) if node.op_type == "Sub" else None
    if value is None or value.dtype.kind != "f":
        return None
    return [graph.new("Add", [node.input[0], graph.add_constant(-value)], node.output[0])]


def clips(graph: Graph, node: onnx.NodeProto) -> Nodes:
    if node.op_type not in ("Max", "Min") or len(node.input) != 2:
        return None
    for x, bound in (node.input, node.input[::-1]):
        value = graph.constant(bound)
        if value is None or value.size != 1 or value.dtype != np.float32:
            continue
        if node.op_type == "Max" and value.reshape(()) == 0:
            return [graph.new("Relu", [x], node.output[0])]
        relu = graph.maker.get(x)
        if node.op_type == "Min" and relu is not None and relu.op_type == "Relu":
            bounds = [
                graph.add_constant(np.array(0, np.float32)),
                graph.add_constant(value.reshape(())),
            ]
            return [graph.new("Clip", [relu.input[0], *bounds], node.output[0])]
    return None


def pools(graph: Graph, node: onnx.NodeProto) -> Nodes:
    """Squeeze(MaxPool(two axes added to NHWC)): JAX pools over every axis."""
    pool = graph.maker.get(node.input[0])
    if node.op_type != "Squeeze" or pool is None or pool.op_type != "MaxPool":
        return None
    kernel, pads = attribute(pool, "kernel_shape"), attribute(pool, "pads") or [0] * 8
    steps = attribute(pool, "strides") or [1] * 4
    if len(kernel) != 4 or kernel[0] != 1 or kernel[3] != 1 or attribute(pool, "dilations"):
        return None
    made = nhwc_source(graph, pool.input[0])
    if made is None:
        return None
    source, before = made
    nchw = graph.new("Transpose", [source], perm=[0, 3, 1, 2])
    new = graph.new(
        "MaxPool",
        [nchw.output[0]],
        kernel_shape=kernel[1:3],
        strides=steps[1:3],
        pads=[*pads[1:3], *pads[5:7]],
    )
    back = graph.new("Transpose", [new.output[0]], node.output[0], perm=[0, 2, 3, 1])
    return [*before, nchw, new, back]


def nhwc_source(graph: Graph, name: str) -> tuple[str, list[onnx.NodeProto]] | None:
    """The value that Unsqueeze, Unsqueeze (, Transpose) gave two axes to, transposed likewise."""
    last = graph.maker.get(name)
    moved = last is not None and last.op_type == "Transpose"
    node = graph.maker.get(last.input[0]) if moved and last is not None else last
    for _ in range(2):
        if node is None or node.op_type != "Unsqueeze":
            return None
        name, node = node.input[0], graph.maker.get(node.input[0])
    if not moved:
        return name, []
    perm = attribute(last, "perm")
    if perm[:2] != [0, 1]:
        return None
    transpose = graph.new("Transpose", [name], perm=[p - 2 for p in perm[2:]])
    return transpose.output[0], [transpose]


def global_pools(graph: Graph, node: onnx.NodeProto) -> Nodes:
    if node.op_type != "ReduceMean" or attribute(node, "keepdims", 1):
        return None
    reduced = axes(graph, node)
    if reduced not in ([1, 2], [2, 3]) or len(graph.shapes[node.input[0]]) != 4:
        return None
    before, source = [], node.input[0]
    if reduced == [1, 2]:
        before = [graph.new("Transpose", [source], perm=[0, 3, 1, 2])]
        source = before[0].output[0]
    pool = graph.new("GlobalAveragePool", [source])
    return [*before, pool, graph.new("Flatten", [pool.output[0]], node.output[0], axis=1)]


def gemm_biases(graph: Graph, node: onnx.NodeProto) -> Nodes:
    if node.op_type != "Add":
        return None
    gemm, bias = graph.maker.get(node.input[0]), graph.constant(node.input[1])
    if gemm is None or gemm.op_type != "Gemm" or bias is None or bias.ndim > 1:
        return None
    old = graph.constant(gemm.input[2]) if len(gemm.input) > 2 else np.zeros(())
    if old is None or old.any() or graph.only_reader(gemm.output[0]) is None:
        return None
    same = {a.name: attribute(gemm, a.name) for a in gemm.attribute}
    inputs = [*gemm.input[:2], node.input[1]]
    return [graph.new("Gemm", inputs, node.output[0], **{**same, "beta": 1.0})]


def plain_gemms(graph: Graph, node: onnx.NodeProto) -> Nodes:
    """Quantizers of weights look for MatMul."""
    if node.op_type != "Gemm" or attribute(node, "transA", 0) or attribute(node, "alpha", 1.0) != 1:
        return None
    bias = graph.constant(node.input[2]) if len(node.input) > 2 else np.zeros(())
    if bias is None or (bias.any() and attribute(node, "beta", 1.0)):
        return None
    reader = graph.only_reader(node.output[0])
    if reader is not None and reader.op_type == "Add" and len(graph.shapes[node.output[0]]) == 2:
        other = next((n for n in reader.input if n != node.output[0]), "")
        if graph.constant(other) is not None:
            return None  # its bias is still to come
    before, right = [], node.input[1]
    if attribute(node, "transB", 0):
        before = [graph.new("Transpose", [right], perm=[1, 0])]
        right = before[0].output[0]
    return [*before, graph.new("MatMul", [node.input[0], right], node.output[0])]


RULES: tuple[Rule, ...] = (
    products,
    kept_axes,
    squares,
    means,
    quotients,
    broadcasts,
    short_constants,
    differences,
    clips,
    pools,
    global_pools,
    gemm_biases,
    plain_gemms,
)
