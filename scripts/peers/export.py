"""A JAX model as an ONNX file, and in OpenVINO's form from there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun

from jq.frontends.model import Model

OPSET = 21
Layout = list[int]  # inputs that are given as NCHW


def export_onnx(model: Model, path: Path) -> Layout:
    """Writes `model` with its parameters as constants, constants folded and the graph tidied.

    Images become NCHW inputs, which is what other runtimes compute in. Returns which.
    """
    import onnx
    from jax2onnx import to_onnx

    from peers.onnx_rules import tidy

    logging.getLogger("jax2onnx").setLevel(logging.ERROR)
    specs = [
        jax.ShapeDtypeStruct(np.shape(x), x.dtype) for x in jax.tree.leaves(model.example_inputs)
    ]
    images = [i for i, s in enumerate(specs) if len(s.shape) == 4 and s.shape[-1] in (1, 3)]
    params = jax.tree.map(jax.numpy.asarray, model.params)

    def plain(*inputs: Any) -> Any:
        return model.fn(params, *inputs)

    def convert(function: Callable[..., Any]) -> onnx.ModelProto:
        options = {"inputs_as_nchw": images} if images else {}
        return to_onnx(function, inputs=specs, model_name=model.name, opset=OPSET, **options)

    try:
        exported = convert(plain)
    except TypeError:  # it replaces functions of jax.numpy, not always by the same types
        exported = convert(jaxpr_as_fun(jax.make_jaxpr(plain)(*specs)))
    onnx.save(exported, path)
    fold(path, path)
    onnx.save(tidy(onnx.load(path)), path)
    fold(path, path)
    return images


def fold(source: Path, target: Path) -> None:
    """ONNX Runtime's portable optimizations: constants folded, transposes cancelled."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    folded = target.with_suffix(".folded.onnx")
    options.optimized_model_filepath = str(folded)
    ort.InferenceSession(
        str(source),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["MatMulAddFusion"],  # quantizers and later fusions look for MatMul
    )
    folded.replace(target)


def as_inputs(arrays: Sequence[np.ndarray], images: Layout) -> list[np.ndarray]:
    """Arrays in the layout of the exported model."""
    return [
        np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if i in images else np.array(x, order="C")
        for i, x in enumerate(arrays)
    ]
