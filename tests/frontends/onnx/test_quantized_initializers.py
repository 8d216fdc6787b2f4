"""Float initializers that the file itself quantizes are stored as the codes that come of it.

The oracle is ONNX Runtime without graph optimization.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

import jq
from tests.frontends.onnx.against_ort import by_onnxruntime
from tests.frontends.onnx.test_load import save
from tests.support.targets import LIMITS

RNG = np.random.default_rng(5)
Arrays = dict[str, Any]


def pair(start: str, end: str, *between: NodeProto, **options: Any) -> list[NodeProto]:
    """QuantizeLinear and DequantizeLinear by `s` and `z`, and `between` from `{end}q` to
    `{end}c`."""
    codes = f"{end}c" if between else f"{end}q"
    return [
        helper.make_node("QuantizeLinear", [start, "s", "z"], [f"{end}q"], **options),
        *between,
        helper.make_node("DequantizeLinear", [codes, "s", "z"], [end], **options),
    ]


def turned(start: str, end: str) -> NodeProto:
    return helper.make_node("Transpose", [start], [end], perm=[1, 0])


def product(weight: str = "d") -> NodeProto:
    return helper.make_node("MatMul", ["x", weight], ["y"])


W = RNG.normal(size=(16, 16)).astype(np.float32)
TENSOR = {"w": W, "s": np.float32(0.02), "z": np.int8(3)}
CHANNEL = {"w": W, "s": np.abs(W).max(0) / np.float32(127), "z": np.zeros(16, np.int8)}
BLOCKS = {"w": W, "s": np.full((2, 16), 0.4, np.float32), "z": np.zeros((2, 16), ml_dtypes.int4)}
CASES: dict[str, tuple[list[NodeProto], Arrays]] = {
    "one scale": ([*pair("w", "d"), product()], TENSOR),
    "transpose after": ([*pair("w", "d", axis=1), turned("d", "t"), product("t")], CHANNEL),
    "transpose between": ([*pair("w", "d", turned("dq", "dc")), product()], TENSOR),
    "transpose before": ([turned("w", "t"), *pair("t", "d"), product()], TENSOR),
    "unsigned": ([*pair("w", "d"), product()], TENSOR | {"z": np.uint8(120)}),
    "blocks of int4": ([*pair("w", "d", axis=0, block_size=8), product()], BLOCKS),
    "float8": ([*pair("w", "d"), product()], TENSOR | {"z": np.float32(0).astype("float8_e4m3fn")}),
    "computed": (
        [helper.make_node("Mul", ["w", "k"], ["v"]), *pair("v", "d"), product()],
        TENSOR | {"k": np.linspace(0.5, 1.5, 16, dtype=np.float32)},
    ),
    "quantized twice": ([*pair("w", "d"), *pair("d", "e"), product("e")], TENSOR),
    "range of the data": (
        [
            helper.make_node("DynamicQuantizeLinear", ["w"], ["q", "t", "o"]),
            helper.make_node("DequantizeLinear", ["q", "t", "o"], ["d"]),
            product(),
        ],
        {"w": W},
    ),
    "a sum": ([*pair("w", "d"), helper.make_node("Add", ["x", "d"], ["y"])], TENSOR),
}


@pytest.mark.parametrize("name", CASES)
def test_its_codes_are_stored(tmp_path: Path, name: str) -> None:
    nodes, arrays = CASES[name]
    end = TensorProto.FLOAT, (16, 16)
    path = save(tmp_path / "m.onnx", nodes, [("x", *end)], [("y", *end)], arrays, opset=21)
    x = RNG.normal(size=(16, 16)).astype(np.float32)
    (expected,) = by_onnxruntime(path, x)
    model = jq.load_onnx(path)
    y = np.asarray(model.fn(model.params, x)["y"])
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    level = jq.rewrite(model, pipeline="float")["integer"]
    assert not [n for n, a in level.weights.items() if a.dtype == np.float32 and a.size == W.size]
    assert "jq.quantize" not in level.text().partition("func.func private")[0]


@pytest.mark.parametrize("name", ["one scale", "transpose between", "codes"])
def test_a_zero_point_of_0_is_none(tmp_path: Path, name: str) -> None:
    """Also a number without axes, as quantizers write it: devices have no others for weights."""
    end, arrays = (TensorProto.FLOAT, (16, 16)), TENSOR | {"z": np.int8(0)}
    nodes = CASES.get(name, ([],))[0]
    if name == "codes":
        nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"]), product()]
        arrays |= {"w": np.arange(-128, 128, dtype=np.int8).reshape(16, 16)}
    path = save(tmp_path / "m.onnx", nodes, [("x", *end)], [("y", *end)], arrays, opset=21)
    assert jq.check(path, LIMITS)["refused"] == []
    (op,) = jq.plan(path, pipeline="int8-dynamic").ops
    assert op.to_dict()["weights"] == "int8 per-tensor symmetric (stored)"
