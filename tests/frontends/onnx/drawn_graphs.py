"""Drawn graphs of 2 to 15 operators, quantized by ONNX Runtime with drawn options, and imported.

What is compared are the codes of every quantized tensor, layer by layer
(`tests.frontends.onnx.by_layer`).
"""

from __future__ import annotations

import logging
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from traceback import extract_tb
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto
from onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    NotImplemented,
    RuntimeException,
)
from onnxruntime.quantization import CalibrationDataReader
from onnxruntime.quantization.shape_inference import quant_pre_process

import tests.frontends.onnx.drawn.images
import tests.frontends.onnx.drawn.shapes
import tests.frontends.onnx.drawn.values  # noqa: F401  (defines steps)
from tests.frontends.onnx.against_ort import by_onnxruntime
from tests.frontends.onnx.by_layer import layers
from tests.frontends.onnx.drawn.graph import NEWEST, OLDEST, STEPS, Graph
from tests.frontends.onnx.drawn.images import convolution, whole_pool
from tests.frontends.onnx.drawn.options import Draw, written
from tests.frontends.onnx.drawn.values import product

# ONNX Runtime has no integer form of an operator for these types, or finds the file invalid.
REFUSALS = (Fail, InvalidArgument, InvalidGraph, NotImplemented, RuntimeException)
IMAGE, ROWS, LINES, WORDS = (2, 4, 8, 8), (2, 5, 32), (3, 32), (2, 5)
VOCABULARY = 20


def graph(seed: int) -> Graph:
    """Nodes, from images, rows of vectors, vectors or the numbers of words."""
    rng = np.random.default_rng(seed)
    shape = [IMAGE, ROWS, LINES, WORDS][rng.choice(4, p=[0.5, 0.25, 0.1, 0.15])]
    kind = TensorProto.INT64 if shape is WORDS else TensorProto.FLOAT
    g = Graph(rng, (shape, kind), int(rng.integers(OLDEST, NEWEST + 1)))
    if shape is WORDS:
        g.add("Gather", [g.const(VOCABULARY, 32), "x"])
    else:
        g.shapes["x"] = shape
    first = product if shape is not IMAGE else convolution if g.chance(0.8) else whole_pool
    count = int(rng.integers(2, 16))
    first(g)
    for _ in range(200):
        if len(g.nodes) >= count:
            break
        STEPS[rng.integers(len(STEPS))](g)
    return g


def written_float(g: Graph, path: Path) -> dict[str, int]:
    """The file, some axes of its input without a size; the sizes that they have here."""
    shape: list[Any] = list(g.source[0])
    named = [a for a in range(len(shape)) if g.chance(0.3 if a else 0.5)] if g.chance(0.4) else []
    sizes = {f"size{a}": shape[a] for a in named}
    for axis in named:
        shape[axis] = f"size{axis}"
    ends = [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in g.ends()]
    model = g.model(ends, shape)
    known = {v.name: v for v in onnx.shape_inference.infer_shapes(g.model([])).graph.value_info}
    for end in model.graph.output:
        kind = known[end.name].type.tensor_type.elem_type if end.name in known else 1
        end.type.tensor_type.elem_type = kind
    onnx.save(model, path)
    return sizes


class Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, rng: np.random.Generator, g: Graph) -> None:
        self.left = iter([{"x": example(rng, g)} for _ in range(3)])

    def get_next(self) -> Any:
        return next(self.left, None)


def example(rng: np.random.Generator, g: Graph) -> np.ndarray:
    shape, kind = g.source
    if kind == TensorProto.INT64:
        return rng.integers(VOCABULARY, size=shape)
    return rng.normal(size=shape).astype(np.float32)


@dataclass(frozen=True)
class Drawn:
    """A quantized file: the options that it was made with, its sizes, an example of its input."""

    path: Path
    options: str
    sizes: dict[str, int]
    x: np.ndarray


class NotMade(Exception):
    """ONNX Runtime's quantizer does not take the graph or the options."""


def quantized(seed: int, folder: Path) -> Drawn:
    g, rng = graph(seed), np.random.default_rng([seed, 1])
    source, path = folder / "float.onnx", folder / "quantized.onnx"
    sizes, x = written_float(g, source), example(np.random.default_rng([seed, 2]), g)
    logging.disable(logging.ERROR)  # advice to preprocess the model, nodes that stay float
    try:
        with redirect_stdout(StringIO()):
            return Drawn(path, _quantized(g, rng, source, path), sizes, x)
    except Exception as error:  # of any kind
        if not _from_onnxruntime(error):
            raise
        raise NotMade(f"{type(error).__name__}: {error}") from error
    finally:
        logging.disable(logging.NOTSET)


def _from_onnxruntime(error: Exception) -> bool:
    """True where its quantizer raised it, and not we: in a call of it, or in one that it made."""
    ours, theirs = Path(__file__).parent, Path(onnxruntime.__file__).parent
    frames = [Path(frame.filename) for frame in extract_tb(error.__traceback__)]
    last = [p for p in frames if p.is_relative_to(ours) or p.is_relative_to(theirs)][-1]
    return last.is_relative_to(theirs)


def _quantized(g: Graph, rng: np.random.Generator, source: Path, path: Path) -> str:
    if rng.random() < 0.3:
        quant_pre_process(source, source, skip_symbolic_shape=True)
    draw = Draw(rng, onnx.load(source).graph)
    return written(draw, source, path, Samples(rng, g))


@dataclass(frozen=True)
class Outcome:
    """The outcome of one drawn graph.

    Attributes:
        wrong: what is wrong with its import, and the options; empty where nothing is.
        not_compared: why there is nothing to compare with: ONNX Runtime cannot quantize the graph,
            or run the file that it wrote. Empty where the layers were compared.
    """

    wrong: str = ""
    not_compared: str = ""


def outcome(seed: int, folder: Path) -> Outcome:
    """The outcome of the import of a drawn graph."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            drawn = quantized(seed, folder)
        except NotMade as error:
            return Outcome(not_compared=f"not quantized: {error}")
    try:
        by_onnxruntime(drawn.path, drawn.x)
    except REFUSALS as error:
        return Outcome(not_compared=f"{type(error).__name__}: {error}: {drawn.options}")
    found = layers(drawn.path, drawn.x, sizes=drawn.sizes)
    wrong = [layer for layer in found if layer.wrong]
    return Outcome(f"{wrong}: {drawn.options}" if wrong else "")
