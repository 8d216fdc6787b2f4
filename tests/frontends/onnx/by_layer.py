"""Quantized ONNX graphs layer by layer: each layer reads the codes that ONNX Runtime computed.

    x -> Q -> DQ -> Conv -> Q -> DQ -> ...      becomes      x -> Q | given -> DQ -> Conv -> Q | ...

Every tensor of codes is an output, and what reads it reads an input instead, which is given what
ONNX Runtime made. A difference is then that of one layer, which has one reason: ONNX Runtime adds
floats, in an order of its own, where our integer sums are exact, and a number close to the middle
between two codes falls to the other side.

The oracle is therefore twofold. Codes are those of ONNX Runtime, or next to them. And they are the
nearest to the exact number, that of the same layer in float64: between an exact sum of integers and
its code stand a handful of float operations (scale, bias, function, division by the step), each of
which rounds by 2^-24 of its size, functions by a few times that. `ROUNDINGS` of them are allowed.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

import jq
from jq.ir.oracle.xla import XlaExecutable
from tests.frontends.onnx.against_ort import by_onnxruntime
from tests.frontends.onnx.exact_layers import constants, exact

ROUNDINGS = 16
GIVEN = "/given"


@dataclass(frozen=True)
class Layer:
    """The result of a layer.

    Attributes:
        differing, apart: codes that are not ONNX Runtime's, and by how many steps at most.
        roundings: how far beyond half a step our codes are from the exact numbers, in 2^-24 of
            the largest number.
        error: of a tensor of floats, over the largest number.
        codes: it is a tensor of codes, and not of scales or zero points.
    """

    name: str
    op: str
    size: int
    differing: int = 0
    apart: int = 0
    roundings: float = 0.0
    error: float = 0.0
    codes: bool = False

    @property
    def wrong(self) -> bool:
        """Floats are sums of at most a few hundred products."""
        return self.apart > 1 or self.roundings > ROUNDINGS or self.error > 1e-5


def layers(path: Path, *inputs: np.ndarray, sizes: dict[str, int] | None = None) -> list[Layer]:
    """Results of a quantized file's layers; `shown` and `cut` files are written beside it.

    `sizes` are those of named dimensions.
    """
    model, kept = shown(onnx.load(path)), path.with_name("shown.onnx")
    onnx.save(model, kept)
    theirs = dict(
        zip([o.name for o in model.graph.output], by_onnxruntime(kept, *inputs), strict=True)
    )
    xs = dict(zip([i.name for i in model.graph.input], inputs, strict=True))
    apart = cut(copy.deepcopy(model), theirs)
    onnx.save(apart, path.with_name("cut.onnx"))
    given = inputs_of(apart, xs, theirs)
    source = jq.load_onnx(path.with_name("cut.onnx"), sizes=sizes)
    program = jq.rewrite(source, pipeline="float")["integer"]
    found = XlaExecutable(program, strict=True)(*given)
    ours = dict(zip([s.name for s in program.outputs], found, strict=True))
    wide = exact(apart, given)
    makers = {name: n.op_type for n in model.graph.node for name in n.output}
    return [_layer(name, makers[name], ours[name], y, wide.get(name)) for name, y in theirs.items()]


def _layer(name: str, op: str, ours: Any, theirs: np.ndarray, wide: Any) -> Layer:
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        raise AssertionError(
            f"{name} is {ours.dtype}{ours.shape}, not {theirs.dtype}{theirs.shape}"
        )
    if theirs.dtype.name.startswith("float8"):
        away = np.abs(_order(ours) - _order(theirs))
        return Layer(name, op, away.size, int((away > 0).sum()), int(away.max(initial=0)))
    if theirs.dtype.kind not in "iu":
        largest = max(float(np.abs(theirs).max(initial=0)), 1e-6)
        return Layer(
            name, op, theirs.size, error=float(np.abs(ours - theirs).max(initial=0)) / largest
        )
    away = np.abs(ours.astype(np.int64) - theirs.astype(np.int64))
    rounded = 0.0
    if op == "QuantizeLinear":
        info = np.iinfo(theirs.dtype)
        off = np.abs(ours - np.clip(wide, info.min, info.max)).max(initial=0) - 0.5
        rounded = max(0.0, float(off)) / (2**-24 * float(np.abs(wide).max(initial=1)))
    different = int((away > 0).sum()), int(away.max(initial=0))
    return Layer(name, op, away.size, *different, rounded, codes=away.ndim > 0)


def _order(codes: np.ndarray) -> np.ndarray:
    """Numbers of float8 in their order, as integers: the sign is a bit of its own."""
    raw = codes.view(np.uint8).astype(np.int64)
    return np.where(raw < 128, raw, 128 - raw)


def makes_codes(node: onnx.NodeProto) -> bool:
    quantizes = ("QuantizeLinear", "DynamicQuantizeLinear", "QGemm")
    return node.op_type in quantizes or node.op_type.startswith("QLinear")


def shown(model: onnx.ModelProto) -> onnx.ModelProto:
    """With all tensors of quantized numbers as outputs, and the floats that give a range; codes of
    weights are not: a weight that is given as an input is none. ONNX Runtime is not allowed to
    round activations (`accuracy_level`), which it may and we do not."""
    there = {o.name for o in model.graph.output} | {i.name for i in model.graph.input}
    there |= constants(model)
    for node in model.graph.node:
        kept = [a for a in node.attribute if a.name != "accuracy_level"]
        del node.attribute[:]
        node.attribute.extend(kept)
        names = list(node.output) if makes_codes(node) else []
        names += [node.input[0]] if node.op_type == "DynamicQuantizeLinear" else []
        for name in names:
            if name not in there:
                there.add(name)
                model.graph.output.append(helper.make_value_info(name, onnx.TypeProto()))
    return model


def cut(model: onnx.ModelProto, values: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Readers of the outputs `values` read inputs `NAME/given` instead."""
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            if name in values:
                node.input[i] = name + GIVEN
    for name, array in values.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        model.graph.input.append(helper.make_tensor_value_info(name + GIVEN, kind, array.shape))
    return model


def inputs_of(
    apart: onnx.ModelProto, xs: dict[str, np.ndarray], values: dict[str, np.ndarray]
) -> list[np.ndarray]:
    """Inputs of a graph that is `cut`: from the whole graph's `xs`, and from the values given."""
    names = [i.name for i in apart.graph.input]
    return [xs[n] if n in xs else values[n.removesuffix(GIVEN)] for n in names]
