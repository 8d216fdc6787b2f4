"""One operator by `jq.frontends.onnx` and by ONNX Runtime without graph optimization, on the same
inputs."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

import jq.frontends.onnx.operators  # noqa: F401  (defines them)
from jq.frontends.onnx.read import from_proto
from jq.frontends.onnx.values import plain
from jq.frontends.onnx.walk import Walk, require_operators

OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
# ONNX Runtime has its products of integers from tables, or from pairs that add up in 16 bits, on
# some processors; without this setting they saturate there, and without optimization even with it
# (`saturates`).
PRECISE = ("session.x64quantprecision", "1")
# Its arrays of these types come as bytes.
FLOAT8 = {
    "tensor(float8e4m3fn)": ml_dtypes.float8_e4m3fn,
    "tensor(float8e5m2)": ml_dtypes.float8_e5m2,
}


def by_onnxruntime(model: Path | bytes, *inputs: np.ndarray) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # several divide the samples of a DynamicQuantizeLSTM
    options.add_session_config_entry(*PRECISE)
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given = dict(zip([i.name for i in session.get_inputs()], inputs, strict=True))
    kinds = [FLOAT8.get(o.type) for o in session.get_outputs()]
    found = zip(session.run(None, given), kinds, strict=True)
    return [y if kind is None else y.view(kind) for y, kind in found]


@cache
def saturates() -> bool:
    """True where products of uint8 by int8 are added in pairs of 16 bits, on processors without
    VNNI: weights of 7 bits are exact there (`reduce_range` of its quantizers)."""
    a, b = np.full((4, 64), 255, np.uint8), np.full((64, 16), 127, np.int8)
    model = one_node("MatMulInteger", {"a": a, "b": b}, domain="")
    (found,) = by_onnxruntime(model.SerializeToString(), a, b)
    return bool((found != 64 * 255 * 127).any())


def one_node(
    op: str,
    inputs: dict[str, np.ndarray | None],
    outputs: int = 1,
    constants: tuple[str, ...] = (),
    domain: str = "com.microsoft",
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one node; `constants` names inputs that are initializers. Outputs are untyped."""
    names = [k if v is not None else "" for k, v in inputs.items()]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    given = {k: v for k, v in inputs.items() if v is not None}
    ends = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for k, v in given.items()
        if k not in constants
    ]
    arrays = [numpy_helper.from_array(v, k) for k, v in given.items() if k in constants]
    made = [helper.make_value_info(r, onnx.TypeProto()) for r in results]
    graph = helper.make_graph([node], "one", ends, made, arrays)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=10)


def both(
    model: onnx.ModelProto, known: tuple[str, ...], inputs: dict[str, np.ndarray | None]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Results of ours and of ONNX Runtime; inputs in `known` are fixed while tracing."""
    file = from_proto(model, Path("one.onnx"))
    require_operators(file)
    given = [(n, inputs[n]) for n in file.graph.inputs]
    values = [v if n in known else jnp.asarray(v) for n, v in given]
    with jax.enable_x64(True):
        ours = [np.asarray(plain(v)) for v in Walk(file).run(file.graph, values)]
    theirs = by_onnxruntime(model.SerializeToString(), *[v for _, v in given if v is not None])
    return ours, theirs
