"""Quantization that a file carries is kept: codes and scales of the file, integer contractions.

The oracle is ONNX Runtime without graph optimization.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import jq
from tests.frontends.onnx.test_load import save

RNG = np.random.default_rng(3)
SHAPE = (2, 3, 12, 12)
STATIC = {
    "qdq": (QuantFormat.QDQ, QuantType.QUInt8, QuantType.QInt8, True),
    "qdq signed": (QuantFormat.QDQ, QuantType.QInt8, QuantType.QInt8, False),
    "operators": (QuantFormat.QOperator, QuantType.QUInt8, QuantType.QUInt8, False),
}


class Samples(CalibrationDataReader):
    def __init__(self) -> None:
        self.left = iter([{"x": RNG.normal(size=SHAPE).astype(np.float32)} for _ in range(2)])

    def get_next(self) -> Any:
        return next(self.left, None)


def network(path: Path) -> Path:
    """A convolution, a pool and a product."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "k"], ["y"]),
    ]
    sizes = {"w": (8, 3, 3, 3), "b": (8,), "k": (288, 10)}
    arrays = {k: RNG.normal(size=s).astype(np.float32) * 0.1 for k, s in sizes.items()}
    ends = [("x", TensorProto.FLOAT, SHAPE)], [("y", TensorProto.FLOAT, (2, 10))]
    return save(path, nodes, *ends, arrays)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("onnx")
    source, found = network(folder / "float.onnx"), {}
    logging.disable(logging.WARNING)  # advice to preprocess the model
    for name, (form, activations, weights, per_channel) in STATIC.items():
        found[name] = folder / f"{name}.onnx"
        quantize_static(
            source,
            found[name],
            Samples(),
            quant_format=form,
            activation_type=activations,
            weight_type=weights,
            per_channel=per_channel,
        )
    found["dynamic"] = folder / "dynamic.onnx"
    quantize_dynamic(source, found["dynamic"])
    logging.disable(logging.NOTSET)
    return found


def by_onnxruntime(path: Path, *inputs: np.ndarray) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([i.name for i in session.get_inputs()], inputs, strict=True)))


@pytest.mark.parametrize("form", [*STATIC, "dynamic"])
def test_all_contractions_are_integer_with_the_parameters_of_the_file(
    files: dict[str, Path], form: str
) -> None:
    model = jq.load_onnx(files[form])
    for pipeline in ("float", "int8-dynamic") if form == "qdq" else ("float",):
        plan = jq.plan(model, pipeline=pipeline)
        assert [op.decision for op in plan.ops] == ["integer"] * 2
        for op in plan.ops:
            kinds = {p.kind: p.stored for p in op.operands.values()}
            assert kinds == {"given": False, "weight": True}
            assert "(given)" in str(op.to_dict()["activations"])
            assert "(stored)" in str(op.to_dict()["weights"])


@pytest.mark.parametrize("form", [*STATIC, "dynamic"])
def test_it_computes_what_onnxruntime_does(files: dict[str, Path], form: str) -> None:
    model = jq.load_onnx(files[form])
    x = RNG.normal(size=SHAPE).astype(np.float32)
    (expected,) = by_onnxruntime(files[form], x)
    y = np.asarray(model.fn(model.params, x)["y"])
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())


def test_the_artifact_computes_it_in_integers(files: dict[str, Path]) -> None:
    compiled = jq.compile(jq.load_onnx(files["qdq"]), pipeline="float")
    x = RNG.normal(size=SHAPE).astype(np.float32)
    (expected,) = by_onnxruntime(files["qdq"], x)
    np.testing.assert_array_equal(compiled(x)["y"], expected)
    audit = compiled.audit().to_dict()
    assert {(c["lhs"], c["rhs"], c["acc"]) for c in audit["contractions"]} == {("i8", "i8", "i32")}


def one_node(path: Path, node: onnx.NodeProto, inputs: Any, output: Any, arrays: Any) -> Path:
    return save(path, [node], inputs, [("y", *output)], arrays)


@pytest.mark.parametrize(("bits", "zeros"), [(4, False), (4, True), (8, True)])
def test_matmul_n_bits(tmp_path: Path, bits: int, zeros: bool) -> None:
    k, n, block = 64, 24, 32
    arrays: dict[str, Any] = {
        "b": RNG.integers(0, 256, (n, k // block, block * bits // 8)).astype(np.uint8),
        "s": RNG.uniform(0.01, 0.1, n * k // block).astype(np.float32),
    }
    if zeros:
        arrays["z"] = RNG.integers(0, 256, n * k // block * bits // 8).astype(np.uint8)
    node = helper.make_node(
        "MatMulNBits",
        ["x", *arrays],
        ["y"],
        domain="com.microsoft",
        K=k,
        N=n,
        bits=bits,
        block_size=block,
    )
    ends = [("x", TensorProto.FLOAT, (3, k))], (TensorProto.FLOAT, (3, n))
    path = one_node(tmp_path / "m.onnx", node, *ends, arrays)
    x = RNG.normal(size=(3, k)).astype(np.float32)
    (expected,) = by_onnxruntime(path, x)
    model = jq.load_onnx(path)
    y = np.asarray(model.fn(model.params, x)["y"])
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    (op,) = jq.plan(model, pipeline="float").ops
    assert op.decision == "weight-only"
    (weight,) = op.operands.values()
    assert weight.stored
    assert weight.encoding.format == f"int{bits}"
    assert block in weight.encoding.block
