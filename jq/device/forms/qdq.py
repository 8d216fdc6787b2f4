"""ONNX files (`.onnx`, opset 21) of an integer network: float ops between Q and DQ.

A runtime that knows the pairs computes in integers; one that does not computes in float32. Weights
are int8 by channel, biases int32 with the scale of their sums. ONNX Runtime requantizes in float32:
scales are chosen so that its codes are those of the integer program (`float_rescale`), and where
none do, the file's metadata says so by layer (`jq.near_ties`)."""

import json
from collections.abc import Sequence
from functools import partial

import numpy as np

from jq.base.errors import UserError
from jq.base.registry import need
from jq.device.forms.table import Arrays, Content

try:
    from onnx import ModelProto, helper

    from jq.device.forms.onnx_graph import value_info
    from jq.device.forms.qdq_base import scale_of
    from jq.device.forms.qdq_elementwise import Elementwise
    from jq.device.forms.qdq_moves import Moves
    from jq.device.forms.qdq_products import Products
except ModuleNotFoundError as error:
    if error.name != "onnx":
        raise
    hint = "pip install 'jaxq[export]'"
    raise UserError("ONNX files need the onnx package", hint=hint) from error

OPSET, IR_VERSION = 21, 10


class _Writer(Products, Elementwise, Moves):
    """The ONNX ops of each kind of step."""


def write(content: Content) -> bytes:
    """The file.

    Raises:
        UserError: a step that has no ONNX op, by the name of its layer."""
    inputs, outputs = content.inputs, content.outputs
    writer = _Writer(content.rescaling, content.steps)
    for tensor in inputs:
        writer.graph.hold(tensor, tensor.name)
    for step in content.steps:
        writer.step(step)
    for tensor in outputs:
        writer.finish(tensor)
    g = writer.graph
    infos = [[value_info(t.name, t.dtype, t.shape) for t in ts] for ts in (inputs, outputs)]
    graph = helper.make_graph(g.nodes, "main", *infos, initializer=g.initializers)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    scales = {
        t.name: {"scale": float(scale_of(t)), "zero_point": t.zero}
        for t in (*inputs, *outputs)
        if t.scale is not None
    }
    metadata = {"jq.ends": json.dumps(scales), "jq.near_ties": json.dumps(writer.near_ties)}
    helper.set_model_props(model, metadata)
    return bytes(model.SerializeToString())


def near_ties(data: bytes) -> dict[str, str]:
    """Layers of a file whose codes may differ by one, with the cause of each."""
    found = {p.key: p.value for p in ModelProto.FromString(data).metadata_props}
    return dict(json.loads(found["jq.near_ties"]))


def run(data: bytes, calls: Sequence[Arrays], *, optimized: bool = True) -> list[list[np.ndarray]]:
    """The outputs of a file by ONNX Runtime, on one thread.

    Args:
        optimized: False for the float ops as they are written.

    Raises:
        UserError: ONNX Runtime is not installed."""
    ort = need("onnxruntime", "export", "running an ONNX file needs")
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    # On x86 it turns int8 into uint8 where one op reads a tensor, and computes in float32 where
    # the types of an op then differ.
    options.add_session_config_entry("session.qdqisint8allowed", "1")
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    given = (dict(zip(names, inputs, strict=True)) for inputs in calls)
    return [[np.asarray(y) for y in session.run(None, each)] for each in given]


READERS = {"optimized": run, "as written": partial(run, optimized=False)}
