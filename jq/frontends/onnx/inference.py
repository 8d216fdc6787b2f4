"""Inference by onnx itself on one call: it tells if the inputs and attributes fit together.

A file may have any shapes and attributes. Operators here are written for those that the standard
allows, and would compute something of others; onnx's inference of shapes refuses most of them."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper
from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError, infer_node_outputs

from jq.frontends.onnx.graph import STANDARD, Function, Graph, Node
from jq.frontends.onnx.read import function_of
from jq.frontends.onnx.registry import Call
from jq.frontends.onnx.tensors import Files
from jq.frontends.onnx.values import Value, known


@cache
def schema_of(name: str, domain: str, opset: int) -> Any:
    """The schema that onnx has of an operator in force at `opset`; None where it has none."""
    try:
        return defs.get_schema(name, opset, "" if domain == "ai.onnx" else domain)
    except defs.SchemaError:
        return None


@cache
def defined_by(name: str, domain: str, opset: int) -> Any:
    """The schema whose body says what an operator is: the one in force, or the first later one that
    has a body, where that takes the same inputs, and the same attributes with the same defaults
    (`LeakyRelu` has been what it is since version 6, and has a body since 16); None without."""
    schema = schema_of(name, domain, opset)
    newest = defs.onnx_opset_version() if domain in STANDARD else opset
    for version in range(opset, newest + 1) if schema is not None else ():
        later = schema_of(name, domain, version)
        if later.has_function or later.has_context_dependent_function:
            mine, its = (defaults_of(name, domain, v) for v in (opset, version))
            same = len(later.inputs) == len(schema.inputs) and mine.items() <= its.items()
            return later if same and schema.attributes.keys() <= later.attributes.keys() else None
    return None


@cache
def defaults_of(name: str, domain: str, opset: int) -> Mapping[str, Any]:
    schema = schema_of(name, domain, opset)
    if schema is None:
        return {}
    given = {k: a.default_value for k, a in schema.attributes.items() if a.default_value.name}
    return {k: _text(onnx.helper.get_attribute_value(v)) for k, v in given.items()}


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return [_text(v) for v in value] if isinstance(value, list) else value


def has_definition(node: Node, opset: int) -> bool:
    # A definition cannot be asked for with sub-graphs at hand.
    return not node.graphs and defined_by(node.op, node.domain, opset) is not None


# Operators that the standard itself defines by others: its definition is used as it is.
def definition(
    node: Node, opset: int, inputs: Sequence[Value], attributes: Mapping[str, Any], path: Path
) -> Function | None:
    """The function that onnx's schema gives for this call; None where there is none.

    Some definitions depend on the types of the inputs and on which of them are there."""
    schema = defined_by(node.op, node.domain, opset)
    if schema is None or node.graphs:
        return None
    version = opset if node.domain in STANDARD else schema.since_version
    by_call = schema.has_context_dependent_function
    offered = (
        schema.context_dependent_function_opset_versions
        if by_call
        else schema.function_opset_versions
    )
    best = max((v for v in offered if v <= version), default=min(offered))
    if by_call:
        proto = call_of(node, attributes, inputs).SerializeToString()
        kinds = [type_of(x).SerializeToString() for x in inputs]
        text = schema.get_context_dependent_function_with_opset_version(best, proto, kinds)
    else:
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


_TOLERANT = {"Range"}  # whose inference wants scalars, where vectors of one element are common
# Attributes that are 0 or 1, which inference does not look at.
_FLAGS = (
    *("align_corners", "allowzero", "antialias", "ceil_mode", "count_include_pad"),
    *("detect_negative", "detect_positive", "exclude_outside", "exclusive", "fmod"),
    *("input_forget", "inverse", "is_causal", "keepdims", "largest", "linear_before_reset"),
    *("noop_with_empty_axes", "onesided", "reverse", "saturate", "select_last_index", "sorted"),
    *("storage_order", "training_mode", "transA", "transB", "upper"),
)
_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_DATA = 64  # elements of an input whose numbers inference may ask for: shapes, axes, scales
_READ = (np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.float32))


def require_sound(
    call: Call, schema: Any, opset: int, inputs: Sequence[Value], attributes: Mapping[str, Any]
) -> None:
    """
    Raises:
        UserError: the inputs or attributes are none that the operator has."""
    node = call.node
    for name, value in attributes.items() if schema is not None else ():
        if name in _FLAGS and value not in (0, 1):
            raise call.refuse(f"its {name} is {value!r:.20}, and not 0 or 1")
        if name == "stash_type" and value not in _FLOATS:
            raise call.refuse(f"its {name} is {value!r:.20}, no type of floats")
    if schema is None or node.graphs or node.op in _TOLERANT:
        return
    if not schema.has_type_and_shape_inference_function or list in map(type, inputs):
        return
    pairs = [(n, x) for n, x in zip(node.inputs, inputs, strict=True) if x is not None]
    try:
        types = {name: type_of(x) for name, x in pairs}
        proto = call_of(node, attributes, inputs)
    except (KeyError, TypeError, ValueError):  # a type that this onnx has no number for
        return
    arrays = {n: known(x) for n, x in pairs}
    data = {
        n: numpy_helper.from_array(a)
        for n, a in arrays.items()
        if a is not None and a.size <= _DATA and a.dtype in _READ
    }
    imports = [helper.make_opsetid(node.domain, opset)]
    try:
        infer_node_outputs(schema, proto, types, data, opset_imports=imports)
    except InferenceError as error:
        raise call.refuse(f"{_reason(str(error))} (of {call.shapes(inputs)})") from None
    except ValidationError:  # an operator that a definition of the standard takes from elsewhere
        return


def _reason(text: str) -> str:
    """The reason without the place in onnx's own source, and the node, which the error has."""
    text = text.partition("\n")[0]
    for mark in ("[ShapeInferenceError] ", "[TypeInferenceError] "):
        text = text.rpartition(mark)[2]
    return text.strip()
