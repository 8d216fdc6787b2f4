"""Options of ONNX Runtime's quantizers, drawn for a graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

# The weight's type, how often it is drawn, and the activation's types that go with it.
TYPES = [
    ("QInt8", 0.5, ["QUInt8", "QInt8"]),
    ("QUInt8", 0.15, ["QUInt8"]),
    ("QInt4", 0.08, ["QUInt8", "QInt8", "QUInt16"]),
    ("QUInt4", 0.06, ["QUInt8", "QUInt16"]),
    ("QInt8", 0.06, ["QInt16", "QUInt16"]),
    ("QInt16", 0.06, ["QInt16", "QUInt16", "QUInt8"]),
    ("QUInt16", 0.03, ["QUInt16", "QUInt8"]),
    ("QFLOAT8E4M3FN", 0.06, ["QFLOAT8E4M3FN"]),
]
BYTES = ("QInt8", "QUInt8")  # what operators on integers may have
FLAGS = (
    *("ActivationSymmetric", "ForceQuantizeNoInputCheck", "MatMulConstBOnly"),
    *("AddQDQPairToWeight", "DedicatedQDQPair", "QDQKeepRemovableActivations"),
    *("QDQDisableWeightAdjustForInt32Bias", "UseQDQContribOps", "ActivationRestrictedAsymmetric"),
    *("CalibTensorRangeSymmetric", "CalibMovingAverage", "extra.Sigmoid.nnapi"),
)


class Draw:
    """Options that one graph is quantized with; each method draws a part."""

    def __init__(self, rng: np.random.Generator, graph: onnx.GraphProto) -> None:
        self.rng, self.graph = rng, graph

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def of(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def some(self, names: Sequence[str]) -> list[str]:
        """About half of them."""
        return [n for n in names if self.chance(0.5)]

    def common(self) -> dict[str, Any]:
        """Options of both quantizers."""
        names = [n.name for n in self.graph.node]
        types = sorted({n.op_type for n in self.graph.node})
        found: dict[str, Any] = {"per_channel": self.chance(0.5), "reduce_range": self.chance(0.2)}
        found |= {"nodes_to_quantize": self.some(names)} if self.chance(0.1) else {}
        found |= {"nodes_to_exclude": self.some(names)} if self.chance(0.15) else {}
        found |= {"op_types_to_quantize": self.some(types)} if self.chance(0.15) else {}
        found |= {"use_external_data_format": True} if self.chance(0.1) else {}
        return found

    def extra(self) -> dict[str, Any]:
        found: dict[str, Any] = {name: True for name in FLAGS if self.chance(0.15)}
        found |= {"WeightSymmetric": self.chance(0.5)} if self.chance(0.5) else {}
        found |= {"QuantizeBias": False} if self.chance(0.15) else {}
        found |= {"MinimumRealRange": 1e-3} if self.chance(0.1) else {}
        found |= {"CalibMaxIntermediateOutputs": 1} if self.chance(0.1) else {}
        found |= {"CalibPercentile": 99.0} if self.chance(0.1) else {}
        types = sorted({n.op_type for n in self.graph.node})
        if self.chance(0.15):
            found["OpTypesToExcludeOutputQuantization"] = self.some(types)
        if self.chance(0.15):
            found["QDQOpTypePerChannelSupportToAxis"] = {"MatMul": self.of(0, 1), "Gemm": 1}
        if self.chance(0.1):
            tensor = self.of(*[o for n in self.graph.node for o in n.output])
            kind = QuantType[self.of("QUInt8", "QInt8", "QUInt16", "QInt16")]
            found["TensorQuantOverrides"] = {tensor: [{"quant_type": kind}]}
        return found

    def static(self) -> dict[str, Any]:
        share = np.array([p for _, p, _ in TYPES])
        weight, _, activations = TYPES[self.rng.choice(len(TYPES), p=share / share.sum())]
        activation = self.of(*activations)
        found = self.common() | {"extra_options": self.extra()}
        found["weight_type"], found["activation_type"] = QuantType[weight], QuantType[activation]
        method = self.of("MinMax", "MinMax", "MinMax", "Entropy", "Percentile", "Distribution")
        if weight.startswith("QFLOAT"):
            method, found["reduce_range"] = "Distribution", False
        found["calibrate_method"] = CalibrationMethod[method]
        operators = {weight, activation}.issubset(BYTES) and self.chance(0.45)
        found["quant_format"] = QuantFormat.QOperator if operators else QuantFormat.QDQ
        if not operators and self.chance(0.1):
            found["extra_options"]["BlockSize"] = self.of(2, 4)
        return found

    def dynamic(self) -> dict[str, Any]:
        flags = ("ActivationSymmetric", "EnableSubgraph", "ForceQuantizeNoInputCheck")
        extra = {name: True for name in flags if self.chance(0.2)}
        extra |= {"MatMulConstBOnly": False} if self.chance(0.3) else {}
        extra |= {"WeightSymmetric": self.chance(0.5)} if self.chance(0.5) else {}
        weight = QuantType[self.of("QInt8", "QInt8", "QUInt8")]
        return self.common() | {"weight_type": weight, "extra_options": extra}

    def blocks(self) -> dict[str, Any]:
        """Options of weights alone."""
        found = {
            "bits": int(self.of(4, 4, 8, 2)),
            "block_size": int(self.of(16, 32, 64, 128)),
            "is_symmetric": self.chance(0.5),
            "accuracy_level": self.of(None, 0, 1, 4),
            "quant_format": QuantFormat.QDQ if self.chance(0.3) else QuantFormat.QOperator,
        }
        if found["quant_format"] == QuantFormat.QDQ:
            found["channel_wised_quantize"] = self.chance(0.3)
        if found["bits"] == 4 and self.chance(0.4):
            found["op_types_to_quantize"] = ("MatMul", "Gather")
        if self.chance(0.15):
            found["nodes_to_exclude"] = self.some([n.name for n in self.graph.node])
        return found


def written(draw: Draw, source: Path, path: Path, samples: Any) -> str:
    """Quantizes the file `source` to `path`; what it was done with."""
    how = draw.of("static", "static", "static", "static", "dynamic", "dynamic", "blocks")
    options = getattr(draw, how)()
    text = f"{how} {options}"
    if how == "static":
        quantize_static(source, path, samples, **options)
    elif how == "dynamic":
        quantize_dynamic(source, path, **options)
    else:
        _in_blocks(source, path, draw, options)
    return text


def _in_blocks(source: Path, path: Path, draw: Draw, options: dict[str, Any]) -> None:
    from onnxruntime.quantization import matmul_nbits_quantizer as blocks

    operators = options["quant_format"] == QuantFormat.QOperator
    if operators and options["bits"] == 4 and draw.chance(0.3):
        kind = draw.of(blocks.RTNWeightOnlyQuantConfig, blocks.KQuantWeightOnlyQuantConfig)
        options["algo_config"] = kind()
    quantizer = blocks.MatMulNBitsQuantizer(onnx.load(source), **options)
    quantizer.process()
    quantizer.model.save_model_to_file(str(path))
