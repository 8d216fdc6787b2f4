"""Operators that the standard itself defines by others: its definition is used as it is."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from jq.frontends.onnx.graph import STANDARD, Function, Graph, Node
from jq.frontends.onnx.read import function_of
from jq.frontends.onnx.registry import schema_of
from jq.frontends.onnx.tensors import Files
from jq.frontends.onnx.values import Value


def definition(
    node: Node, opset: int, inputs: Sequence[Value], attributes: Mapping[str, Any], path: Path
) -> Function | None:
    """The function that onnx's schema gives for this call; None where there is none.

    Some definitions depend on the types of the inputs and on which of them are there.
    """
    schema = schema_of(node.op, node.domain, opset)
    if schema is None or node.graphs:
        return None
    version = opset if node.domain in STANDARD else schema.since_version
    text = b""
    if schema.has_context_dependent_function:
        proto = call_of(node, attributes, inputs)
        kinds = [type_of(x).SerializeToString() for x in inputs]
        offered = schema.context_dependent_function_opset_versions
        best = max((v for v in offered if v <= version), default=min(offered, default=0))
        text = schema.get_context_dependent_function_with_opset_version(
            best, proto.SerializeToString(), kinds
        )
    elif schema.has_function:
        offered = schema.function_opset_versions
        best = max((v for v in offered if v <= version), default=min(offered, default=0))
        text = schema.get_function_with_opset_version(best)
    if not text:
        return None
    function = onnx.FunctionProto()
    function.ParseFromString(text)
    return function_of(function, Files(path))


def call_of(node: Node, attributes: Mapping[str, Any], inputs: Sequence[Value]) -> onnx.NodeProto:
    names = [name if x is not None else "" for name, x in zip(node.inputs, inputs, strict=True)]
    simple = {
        k: onnx.numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v
        for k, v in attributes.items()
        if not isinstance(v, Graph)
    }
    return helper.make_node(node.op, names, list(node.outputs), domain=node.domain, **simple)


def type_of(x: Value) -> onnx.TypeProto:
    if x is None:
        return onnx.TypeProto()
    if isinstance(x, list):
        return helper.make_sequence_type_proto(type_of(x[0]))
    code = helper.np_dtype_to_tensor_dtype(np.dtype(x.dtype))
    return helper.make_tensor_type_proto(code, list(x.shape))
