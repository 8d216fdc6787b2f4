"""The comparison layer by layer, of files that ONNX Runtime's quantizer writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantType, quantize_dynamic, quantize_static

from tests.frontends.onnx.by_layer import layers
from tests.frontends.onnx.test_load import save
from tests.frontends.onnx.test_static_kernels import SHAPES, Samples, convolutions, products, real


@pytest.mark.parametrize("kind", [QuantType.QInt8, QuantType.QUInt4])
@pytest.mark.parametrize("make", [convolutions, products])
def test_a_weight_that_a_node_quantizes_is_no_layer(make: Any, kind: Any, tmp_path: Path) -> None:
    shape, path = SHAPES[make.__name__], tmp_path / "q.onnx"
    quantize_static(
        make(tmp_path / "float.onnx"),
        path,
        Samples(shape),
        per_channel=True,
        weight_type=kind,
        extra_options={"AddQDQPairToWeight": True},
    )
    graph = onnx.load(path).graph
    read = {n.input[0] for n in graph.node if n.op_type == "QuantizeLinear"}
    weights = read & {t.name for t in graph.initializer}
    assert weights, "no weight is quantized by a node"
    found = [layer for layer in layers(path, real(*shape)) if layer.op == "QuantizeLinear"]
    assert len(found) == len(read) - len(weights)
    assert not [layer for layer in found if layer.wrong]


def test_codes_are_dequantized_by_a_scale_that_is_found_at_run_time(tmp_path: Path) -> None:
    """`Transpose` of what a convolution quantizes dynamically."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"]),
        helper.make_node("Transpose", ["x"], ["z"], perm=[3, 0, 1, 2]),
    ]
    sizes = [("x", (1, 4, 5, 6)), ("y", (1, 3, 5, 6)), ("z", (6, 1, 4, 5))]
    ends = [(name, TensorProto.FLOAT, shape) for name, shape in sizes]
    source = save(tmp_path / "float.onnx", nodes, ends[:1], ends[1:], {"w": real(3, 4, 1, 1)})
    quantize_dynamic(source, path := tmp_path / "q.onnx")
    read = {n.op_type: n.input for n in onnx.load(path).graph.node}
    assert "x_scale" in read["DequantizeLinear"]
    assert not [layer for layer in layers(path, real(1, 4, 5, 6)) if layer.wrong]
