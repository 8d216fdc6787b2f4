"""The layers of a quantized ONNX graph in float64, for `tests.frontends.onnx.by_layer`."""

from __future__ import annotations

import copy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx import TensorProto, TypeProto, helper, numpy_helper

from jq.frontends.onnx.read import from_proto
from jq.frontends.onnx.values import plain
from jq.frontends.onnx.walk import Walk
from tests.frontends.onnx.against_ort import by_onnxruntime


def exact(model: onnx.ModelProto, inputs: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Each output of the graph before it is rounded to codes."""
    file = from_proto(in_float64(model), Path("exact.onnx"))
    with jax.enable_x64(True):
        wide = [jnp.asarray(v.astype(np.float64) if v.dtype == np.float32 else v) for v in inputs]
        found = Walk(file).run(file.graph, wide)
    return {k: np.asarray(plain(v)) for k, v in zip(file.graph.outputs, found, strict=True)}


def constants(model: onnx.ModelProto) -> set[str]:
    """Tensors that depend on initializers alone, as the codes of a weight that a node quantizes."""
    found = {t.name for t in model.graph.initializer}
    for node in model.graph.node:
        whole = not any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute)
        if whole and found.issuperset(filter(None, node.input)):
            found.update(node.output)
    return found - {i.name for i in model.graph.input}


def in_float64(model: onnx.ModelProto) -> onnx.ModelProto:
    """Each `QuantizeLinear` of an activation gives the number that it would round, in steps; floats
    are float64. Weights that nodes quantize have ONNX Runtime's codes."""
    graph, arrays = model.graph, {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    arrays |= (weights := codes_of_weights(model))
    shapes, nodes = _shapes(model) | {k: list(v.shape) for k, v in weights.items()}, []
    for node in graph.node:
        nodes += [] if node.output[0] in weights else _wide(node, arrays, shapes)
    double = onnx.TensorProto.DOUBLE
    for node in nodes:
        for a in node.attribute:
            if node.op_type == "Cast" and a.name == "to" and a.i == onnx.TensorProto.FLOAT:
                a.i = double
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    wide = {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in arrays.items()}
    graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in wide.items())
    for value in graph.input:
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = double
    return model


def codes_of_weights(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Results, as floats, of nodes that quantize initializers alone: ONNX Runtime makes no
    arrays of numbers of less than a byte."""
    fixed, made = constants(model), copy.deepcopy(model)
    nodes = [n for n in model.graph.node if fixed.issuperset(n.output)]
    found = {n.output[0]: n.domain for n in nodes if n.op_type == "QuantizeLinear"}
    if not found:
        return {}
    del made.graph.node[:], made.graph.input[:], made.graph.output[:]
    made.graph.node.extend([*nodes, *(_as_floats(*item) for item in found.items())])
    made.graph.output.extend(helper.make_value_info(f"{n}/float", TypeProto()) for n in found)
    made.graph.initializer.append(numpy_helper.from_array(np.float32(1), "one"))
    return dict(zip(found, by_onnxruntime(made.SerializeToString()), strict=True))


def _as_floats(name: str, domain: str) -> onnx.NodeProto:
    """A node that reads codes: `Cast` does not take types that the standard has not yet."""
    if domain:
        return helper.make_node("DequantizeLinear", [name, "one"], [f"{name}/float"], domain=domain)
    return helper.make_node("Cast", [name], [f"{name}/float"], to=TensorProto.FLOAT)


def _shapes(model: onnx.ModelProto) -> dict[str, list[int]]:
    """Shapes of tensors where written or inferred from the operators; a size that is not
    known is 0."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    values = [*graph.input, *graph.value_info, *graph.output]
    kinds = {v.name: v.type.tensor_type for v in values}
    found = {k: [d.dim_value for d in v.shape.dim] for k, v in kinds.items() if v.HasField("shape")}
    return found | {t.name: list(t.dims) for t in graph.initializer}


def _wide(
    node: onnx.NodeProto, arrays: dict[str, np.ndarray], shapes: dict[str, list[int]]
) -> list[onnx.NodeProto]:
    """Q and DQ as arithmetic."""
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return [node]
    (x, *names), y = node.input, node.output[0]
    numbers = {a.name: a.i for a in node.attribute}
    axis, block = numbers.get("axis", 1), numbers.get("block_size", 0)
    for name in filter(arrays.__contains__, names):
        arrays[f"{y}/{name}"] = _parameter(arrays[name], axis, block, shapes, x)
    zero = f"{y}/{names[1]}" if len(names) > 1 and names[1] else ""
    found = [n for n in names if n and n not in arrays]  # at run time, for the whole tensor
    to = onnx.TensorProto.DOUBLE
    made, last = [helper.make_node("Cast", [n], [f"{y}/{n}"], to=to) for n in found], x
    if node.op_type == "DequantizeLinear":
        steps = [("Cast", ""), ("Sub", zero), ("Mul", f"{y}/{names[0]}")]
    else:
        steps = [("Div", f"{y}/{names[0]}"), ("Add", zero)]
    for op, by in steps:
        if by or op == "Cast":
            to = {"to": onnx.TensorProto.DOUBLE} if op == "Cast" else {}
            inputs = [last, by] if by else [last]
            last = f"{y}/{op}"
            made.append(helper.make_node(op, inputs, [last], **to))
    made[-1].output[0] = y
    return made


def _parameter(
    value: np.ndarray, axis: int, block: int, shapes: dict[str, list[int]], x: str
) -> np.ndarray:
    """A scale or zero point in float64, in the shape of the tensor `x` that it belongs to."""
    value = value.astype(np.float64)
    if value.size == 1:
        return value.reshape(())
    shape = shapes[x]
    if block:
        return np.repeat(value, block, axis).take(range(shape[axis]), axis)
    return value.reshape([-1 if a == axis % len(shape) else 1 for a in range(len(shape))])
