"""Sums that a file rounds to codes on the way are computed in the kernels of their products."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import jq
from jq.ir.oracle.xla import XlaExecutable
from tests.frontends.onnx.against_ort import by_onnxruntime, saturates
from tests.frontends.onnx.test_load import save
from tests.support.targets import EVERY

SHAPES = {"convolutions": (1, 24, 9, 7), "products": (1, 80, 24)}


RNG = np.random.default_rng(2)


@pytest.fixture(autouse=True)
def same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every test, whichever run before it."""
    monkeypatch.setattr(sys.modules[__name__], "RNG", np.random.default_rng(2))


class Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.left = iter([{"x": real(*shape)} for _ in range(3)])

    def get_next(self) -> Any:
        return next(self.left, None)


def real(*shape: int) -> np.ndarray:
    """Few bits: ONNX Runtime's float sums, from which it takes its scales, are the same on every
    processor, and with them whether a sum of codes can be computed with whole numbers."""
    return np.clip(np.rint(RNG.normal(size=shape) * 4), -16, 16).astype(np.float32) / 4


def weight(*shape: int) -> np.ndarray:
    return RNG.integers(-2, 3, shape).astype(np.float32) / 4


def convolutions(path: Path) -> Path:
    """Two residual blocks; the second one's sum has no clamp after it."""
    arrays = {f"w{i}": weight(*shape) for i, shape in enumerate([(24, 24, 3, 3), (24, 24, 1, 1)])}
    arrays |= {f"b{i}": real(24) for i in range(3)}
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1", "b1"], ["c1"]),
        helper.make_node("Add", ["c1", "x"], ["s1"]),
        helper.make_node("Relu", ["s1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w0", "b2"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["r1", "c2"], ["y"]),
    ]
    return _saved(path, nodes, SHAPES["convolutions"], arrays)


def products(path: Path) -> Path:
    """A bias that is added to codes, and a residual."""
    arrays = {"w0": weight(24, 24), "b0": real(24), "w1": weight(24, 24)}
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["m0"]),
        helper.make_node("Add", ["m0", "b0"], ["a0"]),
        helper.make_node("Relu", ["a0"], ["r0"]),
        helper.make_node("MatMul", ["r0", "w1"], ["m1"]),
        helper.make_node("Add", ["m1", "x"], ["y"]),
    ]
    return _saved(path, nodes, SHAPES["products"], arrays)


def _saved(path: Path, nodes: list[Any], shape: tuple[int, ...], arrays: Any) -> Path:
    ends = [[(name, TensorProto.FLOAT, shape)] for name in "xy"]
    return save(path, nodes, *ends, arrays)


CASES = [
    (convolutions, "QDQ", True, "add_codes"),
    (convolutions, "QDQ", False, "fake_quantize"),  # float: no whole number of steps
    (convolutions, "QOperator", True, "add_codes"),
    (products, "QDQ", True, "fake_quantize"),
]


def quantized(make: Any, form: str, bias: bool, folder: Path) -> Path:
    path = folder / "q.onnx"
    quantize_static(
        make(folder / "float.onnx"),
        path,
        Samples(SHAPES[make.__name__]),
        quant_format=QuantFormat[form],
        per_channel=make is convolutions,
        reduce_range=saturates(),
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        extra_options={"QuantizeBias": bias},
    )
    return path


@pytest.mark.parametrize(("make", "form", "bias", "step"), CASES)
def test_no_op_is_left_between_them(
    make: Any, form: str, bias: bool, step: str, tmp_path: Path
) -> None:
    model = jq.load_onnx(quantized(make, form, bias, tmp_path))
    for target in EVERY:
        text = jq.rewrite(model, pipeline="float", target=target)["target"].text()
        main, _, declared = text.partition("func.func private")
        # A step has calls: kernels that are the same are declared once.
        having = re.findall(rf"@(jq_\w+)\(.*{step}", declared)
        assert sum(main.count(f"call @{name}(") for name in having) == 2, target
        kinds = ("add", "maximum", "convolution")
        assert not any(f"stablehlo.{kind}" in main for kind in kinds), target


@pytest.mark.parametrize(("make", "form", "bias", "step"), CASES)
def test_results_are_onnxruntimes(
    make: Any, form: str, bias: bool, step: str, tmp_path: Path
) -> None:
    path = quantized(make, form, bias, tmp_path)
    model = jq.load_onnx(path)
    levels = jq.rewrite(model, pipeline="float")
    x = real(*SHAPES[make.__name__])
    found, (expected,) = jq.compile(model, pipeline="float")(x)["y"], by_onnxruntime(path, x)
    np.testing.assert_array_equal(found, XlaExecutable(levels["integer"], strict=True)(x)[0])
    scales = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    # A code at a tie, which ONNX Runtime's float sums may round to either side, changes what
    # the next convolution makes of it.
    assert np.abs(np.rint((found - expected) / scales["y_scale"])).max() <= 1
