"""Drawn graphs of 2 to 15 operators, quantized by ONNX Runtime with drawn options, and imported.

What is compared are the codes of every quantized tensor, layer by layer (`tests.onnx.by_layer`).
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    NotImplemented,
    RuntimeException,
)
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from tests.onnx.against_ort import by_onnxruntime
from tests.onnx.by_layer import layers

IMAGE = (2, 4, 8, 8)
# ONNX Runtime has no integer form of an operator for these types, or finds the file invalid.
REFUSALS = (Fail, InvalidArgument, InvalidGraph, NotImplemented, RuntimeException)
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]


@dataclass
class Graph:
    """Nodes so far, and the shape of each tensor that a next one may read."""

    rng: np.random.Generator
    nodes: list[Any] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=lambda: {"x": IMAGE})

    def const(self, *shape: int) -> str:
        name = f"w{len(self.arrays)}"
        width = np.sqrt(np.prod(shape[1:], dtype=float)) if len(shape) > 1 else 1.0
        self.arrays[name] = (self.rng.normal(size=shape) / width).astype(np.float32)
        return name

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], **attributes: Any) -> None:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"n{name}", **attributes))
        self.shapes[name] = shape

    def pick(self, rank: int | None = None) -> str | None:
        """One of the last tensors, of this rank."""
        names = [n for n, s in self.shapes.items() if rank is None or len(s) == rank][-3:]
        return str(self.rng.choice(names)) if names else None


Step = Callable[[Graph], None]
STEPS: list[Step] = []


def on(rank: int | None = None) -> Callable[[Callable[[Graph, str, Any], None]], Step]:
    """A step that reads a tensor of this rank; nothing happens where there is none."""

    def register(function: Callable[[Graph, str, Any], None]) -> Step:
        def step(g: Graph) -> None:
            if (x := g.pick(rank)) is not None:
                function(g, x, g.shapes[x])

        STEPS.append(step)
        return step

    return register


@on(4)
def convolution(g: Graph, x: str, shape: Any) -> None:
    side, out = int(g.rng.choice([1, 3])), int(g.rng.choice([4, 6]))
    group = shape[1] if g.rng.random() < 0.3 else 1
    out = shape[1] if group > 1 else out
    inputs = [x, g.const(out, shape[1] // group, side, side)]
    inputs += [g.const(out)] if g.rng.random() < 0.7 else []
    pads = [side // 2] * 4
    g.add("Conv", inputs, (shape[0], out, *shape[2:]), pads=pads, group=group)


@on(2)
def product(g: Graph, x: str, shape: Any) -> None:
    g.add("MatMul", [x, g.const(shape[1], 12)], (shape[0], 12))


@on(2)
def gemm(g: Graph, x: str, shape: Any) -> None:
    g.add("Gemm", [x, g.const(10, shape[1]), g.const(10)], (shape[0], 10), transB=1)


@on()
def activation(g: Graph, x: str, shape: Any) -> None:
    g.add(str(g.rng.choice(["Relu", "Sigmoid", "LeakyRelu", "Tanh", "HardSigmoid"])), [x], shape)


@on()
def sum_or_product(g: Graph, x: str, shape: Any) -> None:
    others = [n for n, s in g.shapes.items() if s == shape]
    g.add(str(g.rng.choice(["Add", "Mul"])), [x, str(g.rng.choice(others))], shape)


@on(4)
def pool(g: Graph, x: str, shape: Any) -> None:
    op = str(g.rng.choice(["MaxPool", "AveragePool"]))
    g.add(op, [x], shape, kernel_shape=[3, 3], pads=[1, 1, 1, 1])


@on(4)
def flat(g: Graph, x: str, shape: Any) -> None:
    g.add("GlobalAveragePool", [x], (*shape[:2], 1, 1))
    g.add("Flatten", [f"t{len(g.nodes) - 1}"], tuple(shape[:2]))


@on(4)
def joined(g: Graph, x: str, shape: Any) -> None:
    if shape[1] <= 8:
        g.add("Concat", [x, x], (shape[0], 2 * shape[1], *shape[2:]), axis=1)


@on(2)
def softmax(g: Graph, x: str, shape: Any) -> None:
    g.add("Softmax", [x], shape, axis=-1)


def graph(seed: int) -> onnx.ModelProto:
    g = Graph(np.random.default_rng(seed))
    count = int(g.rng.integers(2, 16))
    convolution_or_flat = STEPS[0] if g.rng.random() < 0.7 else STEPS[6]
    convolution_or_flat(g)
    while len(g.nodes) < count:
        STEPS[g.rng.integers(len(STEPS))](g)
    read = {name for n in g.nodes for name in n.input}
    outputs = [o for n in g.nodes for o in n.output if o not in read]
    ends = [("x", IMAGE)], [(o, g.shapes[o]) for o in outputs]
    values = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in e] for e in ends]
    tensors = [numpy_helper.from_array(v, k) for k, v in g.arrays.items()]
    return helper.make_model(
        helper.make_graph(g.nodes, "drawn", *values, tensors), opset_imports=OPSETS, ir_version=9
    )


class Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, rng: np.random.Generator) -> None:
        self.left = iter([{"x": image(rng)} for _ in range(3)])

    def get_next(self) -> Any:
        return next(self.left, None)


def image(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=IMAGE).astype(np.float32)


def quantized(seed: int, folder: Path) -> tuple[Path, str]:
    """The file, and the options that it was made with."""
    rng = np.random.default_rng([seed, 1])
    source, path = folder / "float.onnx", folder / "quantized.onnx"
    onnx.save(graph(seed), source)
    weights = QuantType.QInt8 if rng.random() < 0.7 else QuantType.QUInt8
    per_channel, narrow = bool(rng.random() < 0.5), bool(rng.random() < 0.2)
    common = {"weight_type": weights, "per_channel": per_channel, "reduce_range": narrow}
    logging.disable(logging.WARNING)  # advice to preprocess the model
    try:
        if rng.random() < 0.25:
            quantize_dynamic(source, path, **common)
            return path, f"dynamic {common}"
        wide = [QuantType.QInt16, QuantType.QUInt16] if rng.random() < 0.15 else []
        kinds = wide or [QuantType.QUInt8, QuantType.QInt8]
        signed = weights == QuantType.QInt8  # other weights do not go with signed activations
        common["activation_type"] = kinds[rng.integers(2)] if signed or wide else QuantType.QUInt8
        forms = [QuantFormat.QDQ] if wide else [QuantFormat.QDQ, QuantFormat.QOperator]
        common["quant_format"] = forms[rng.integers(len(forms))]
        common["extra_options"] = {
            "ActivationSymmetric": bool(rng.random() < 0.3),
            "WeightSymmetric": bool(rng.random() < 0.7),
            "ForceQuantizeNoInputCheck": bool(rng.random() < 0.3),
        }
        quantize_static(source, path, Samples(rng), **common)
        return path, f"static {common}"
    finally:
        logging.disable(logging.NOTSET)


@dataclass(frozen=True)
class Outcome:
    """Of one drawn graph.

    Attributes:
        wrong: what is wrong with its import, and the options; empty where nothing is.
        not_compared: why there is nothing to compare with: ONNX Runtime cannot run the file that
            it wrote. Empty where the layers were compared.
    """

    wrong: str = ""
    not_compared: str = ""


def outcome(seed: int, folder: Path) -> Outcome:
    """Of the import of a drawn graph."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path, options = quantized(seed, folder)
    x = image(np.random.default_rng([seed, 2]))
    try:
        by_onnxruntime(path, x)
    except REFUSALS as error:
        return Outcome(not_compared=f"{type(error).__name__}: {error}: {options}")
    wrong = [layer for layer in layers(path, x) if layer.wrong]
    return Outcome(f"{wrong}: {options}" if wrong else "")
