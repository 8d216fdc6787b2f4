"""A layer of a transformer that ONNX Runtime has quantized dynamically runs in kernels, with its
codes: one range a tensor, one product for q, k and v, one kernel for the attention."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import quantize_dynamic

import jq
from tests.frontends.onnx.against_ort import by_onnxruntime, saturates
from tests.frontends.onnx.test_load import save
from tests.support.targets import EVERY

ROWS, WIDTH, HEADS = 16, 64, 4
RNG = np.random.default_rng(0)


def layer(path: Path) -> Path:
    """Attention with a mask, a residual, and two products with a GELU between."""
    sizes = {"q": (WIDTH, WIDTH), "k": (WIDTH, WIDTH), "v": (WIDTH, WIDTH), "o": (WIDTH, WIDTH)}
    sizes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    arrays: dict[str, Any] = {}
    for name, size in sizes.items():
        arrays[f"w_{name}"] = RNG.normal(size=size).astype(np.float32) / np.float32(8)
        arrays[f"b_{name}"] = RNG.normal(size=size[1]).astype(np.float32) / 4
    numbers = {"one": 1, "big": -10000, "two": np.sqrt(2), "half": 0.5, "root": 4}
    arrays |= {name: np.float32(number) for name, number in numbers.items()}
    shapes = {"heads": [1, ROWS, HEADS, -1], "flat": [1, ROWS, WIDTH], "row": [1, 1, 1, ROWS]}
    arrays |= {name: np.asarray(shape, np.int64) for name, shape in shapes.items()}
    nodes: list[Any] = []

    def add(op: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], **attributes))
        return f"t{len(nodes) - 1}"

    def linear(x: str, name: str) -> str:
        return add("Add", add("MatMul", x, f"w_{name}"), f"b_{name}")

    orders = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
    q, k, v = (
        add("Transpose", add("Reshape", linear("x", name), "heads"), perm=order)
        for name, order in orders.items()
    )
    shown = add("Reshape", add("Cast", "mask", to=TensorProto.FLOAT), "row")
    hidden = add("Mul", add("Sub", "one", shown), "big")
    scores = add("Softmax", add("Add", add("Div", add("MatMul", q, k), "root"), hidden), axis=-1)
    mixed = add("Transpose", add("MatMul", scores, v), perm=[0, 2, 1, 3])
    y = add("Add", linear(add("Reshape", mixed, "flat"), "o"), "x")
    up = linear(y, "up")
    bell = add("Add", add("Erf", add("Div", up, "two")), "one")
    linear(add("Mul", add("Mul", up, bell), "half"), "down")
    nodes[-1].output[0] = "y"
    ends = [("x", TensorProto.FLOAT, [1, ROWS, WIDTH]), ("mask", TensorProto.INT32, [1, ROWS])]
    return save(path, nodes, ends, [("y", TensorProto.FLOAT, [1, ROWS, WIDTH])], arrays)


def quantized(folder: Path) -> Path:
    """The layer, as ONNX Runtime quantizes it."""
    logging.disable(logging.WARNING)  # advice to preprocess the model
    path = folder / "dynamic.onnx"
    made = layer(folder / "float.onnx")
    quantize_dynamic(made, path, per_channel=True, reduce_range=saturates())
    logging.disable(logging.NOTSET)
    return path


def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Results of masks of several lengths: ours and ONNX Runtime's."""
    with TemporaryDirectory() as folder:
        path = quantized(Path(folder))
        found = jq.compile(jq.load_onnx(path), pipeline="float")
        for rows in (ROWS, 9, 1):
            x = RNG.normal(size=(1, ROWS, WIDTH)).astype(np.float32)
            mask = (np.arange(ROWS) < rows).astype(np.int32)[None]
            yield np.asarray(found(x, mask)["y"]), by_onnxruntime(path, x, mask)[0]


def test_results_are_onnxruntimes() -> None:
    """Up to a few codes next to theirs: the same range, but floats are added in another order."""
    found = list(pairs())
    for ours, theirs in found:
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=np.abs(theirs).max() / 255)
    assert np.median([np.abs(a - b).max() for a, b in found]) < 1e-4


@pytest.mark.parametrize("target", EVERY)
def test_everything_has_a_kernel(target: str, tmp_path: Path) -> None:
    model = jq.load_onnx(quantized(tmp_path))
    ops = jq.explain(model, pipeline="float", target=target)["ops"]
    assert len(ops) == 8 and all(op["kernel"] for op in ops)
    assert len([op for op in ops if op["merged_from"]]) == 3
    assert sum("attention" in op["kernel"] for op in ops) == 2


def test_a_float_file_has_no_codes(tmp_path: Path) -> None:
    model = jq.load_onnx(layer(tmp_path / "m.onnx"))
    assert "xi8>" not in str(jq.rewrite(model, pipeline="float")["target"].module)
