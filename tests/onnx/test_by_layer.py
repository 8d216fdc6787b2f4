"""What the comparison layer by layer says of files that ONNX Runtime's quantizer writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnxruntime.quantization import quantize_static

from tests.onnx.by_layer import layers
from tests.onnx.test_static_kernels import SHAPES, Samples, convolutions, products, real


@pytest.mark.parametrize("make", [convolutions, products])
def test_a_weight_that_a_node_quantizes_is_no_layer(make: Any, tmp_path: Path) -> None:
    shape, path = SHAPES[make.__name__], tmp_path / "q.onnx"
    quantize_static(
        make(tmp_path / "float.onnx"),
        path,
        Samples(shape),
        per_channel=True,
        extra_options={"AddQDQPairToWeight": True},
    )
    graph = onnx.load(path).graph
    read = {n.input[0] for n in graph.node if n.op_type == "QuantizeLinear"}
    weights = read & {t.name for t in graph.initializer}
    assert weights, "no weight is quantized by a node"
    found = [layer for layer in layers(path, real(*shape)) if layer.op == "QuantizeLinear"]
    assert len(found) == len(read) - len(weights)
    assert not [layer for layer in found if layer.wrong]
