"""Reads an ONNX file: tensors are mapped or read once, and nothing is computed."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, helper

from jq.base import UserError, read_input
from jq.base.system.files import mapped
from jq.frontends.onnx import graph as graphs
from jq.frontends.onnx import validate
from jq.frontends.onnx.tensors import Files


def read_file(path: Path) -> graphs.File:
    """Reads a model; tensors are mapped or read once, and nothing is computed. A `.tflite` file is
    read as the ONNX model with Q/DQ that computes the same.

    Raises:
        UserError: it cannot be read, is damaged, or refers to files outside of its folder."""
    if path.suffix == ".tflite":
        from jq.frontends.tflite.operators import as_onnx

        return from_proto(as_onnx(read_input(path), path), path)
    return from_proto(_parse(path), path)


def from_proto(model: onnx.ModelProto, path: Path) -> graphs.File:
    validate.require_text(model, path)
    opsets = _opsets(model.opset_import)
    if not opsets:
        raise UserError("the model names no version of its operators", location=str(path))
    newest = onnx.defs.onnx_opset_version()
    if opsets.get("", 1) > newest:
        what = f"the model uses operators of version {opsets['']}, the newest known is {newest}"
        raise UserError(what, location=str(path), hint="install a newer onnx package")
    files = Files(path)
    functions = {
        (_domain(f.domain), f.name, f.overload): function_of(f, files) for f in model.functions
    }
    validate.refuse_twice(
        [f"function {f.domain}.{f.name} {f.overload}" for f in model.functions], path
    )
    validate.refuse_recursion(functions, path)
    graph = _graph(model.graph, files)
    validate.require_names(graph, path)
    return graphs.File(path, graph, opsets, functions, model.producer_name)


def _parse(path: Path) -> onnx.ModelProto:
    if not (data := mapped(path)):
        raise UserError("the file is empty", location=str(path))
    slim = graphs.without_tensors(data, str(path))
    model = onnx.ModelProto()
    try:
        model.ParseFromString(slim)
    except DecodeError as error:
        raise UserError(f"no ONNX model, or a damaged one: {error}", location=str(path)) from None
    if not model.HasField("graph"):
        raise UserError("no ONNX model: there is no graph in it", location=str(path))
    return model


def function_of(proto: onnx.FunctionProto, files: Files) -> graphs.Function:
    nodes = validate.sorted_nodes([_node(n, files) for n in proto.node], files.path)
    graph = graphs.Graph(nodes, tuple(proto.input), tuple(proto.output))
    given = {a.name: _attribute(a, files) for a in proto.attribute_proto}
    # What the caller does not give is absent, not a reference that nothing answers.
    defaults = dict.fromkeys(proto.attribute) | given
    return graphs.Function(graph, _opsets(proto.opset_import), defaults)


def _opsets(imports: Any) -> dict[str, int]:
    return {_domain(entry.domain): entry.version for entry in imports}


def _domain(name: str) -> str:
    return "" if name in graphs.STANDARD else name


def _graph(proto: onnx.GraphProto, files: Files) -> graphs.Graph:
    initializers = {t.name: files.array(t) for t in proto.initializer}
    initializers |= {t.values.name: files.dense(t) for t in proto.sparse_initializer}
    names = [*proto.initializer, *(t.values for t in proto.sparse_initializer)]
    validate.refuse_twice([f"initializer {t.name}" for t in names], files.path)
    nodes = validate.sorted_nodes([_node(n, files) for n in proto.node], files.path)
    constants = {n.outputs[0]: value for n in nodes if (value := _constant(n)) is not None}
    initializers |= constants
    nodes = tuple(n for n in nodes if _constant(n) is None)
    inputs = tuple(v.name for v in proto.input if v.name not in initializers)
    types = {v.name: v.type for v in (*proto.input, *proto.output)}
    return graphs.Graph(nodes, inputs, tuple(v.name for v in proto.output), initializers, types)


def _constant(node: graphs.Node) -> np.ndarray | None:
    """The tensor that a node is, if it is one."""
    if node.op != "Constant":
        return None
    values = (node.attributes.get(key) for key in ("value", "sparse_value"))
    return next((v for v in values if isinstance(v, np.ndarray)), None)


def _node(proto: onnx.NodeProto, files: Files) -> graphs.Node:
    attributes = {a.name: _attribute(a, files) for a in proto.attribute}
    ends = tuple(proto.input), tuple(proto.output)
    return graphs.Node(
        proto.op_type, _domain(proto.domain), proto.overload, *ends, attributes, proto.name
    )


def _attribute(proto: onnx.AttributeProto, files: Files) -> Any:
    if proto.ref_attr_name:
        return graphs.Reference(proto.ref_attr_name)
    if proto.type == AttributeProto.GRAPH:
        return _graph(proto.g, files)
    if proto.type == AttributeProto.TENSOR:
        return files.array(proto.t)
    if proto.type == AttributeProto.SPARSE_TENSOR:
        return files.dense(proto.sparse_tensor)
    value = helper.get_attribute_value(proto)
    if proto.type == AttributeProto.STRINGS:
        return [s.decode(errors="replace") for s in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value
