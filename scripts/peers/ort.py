"""ONNX Runtime: float32, dynamic and static int8, weights in 8 and 4 bits."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from peers.case import DYNAMIC, FLOAT, STATIC, WEIGHTS4, WEIGHTS8, Case, Contender, Source
from peers.installed import versions_of

BLOCK = 32
BY_CHANNEL = 13  # the version of the standard whose DequantizeLinear has an axis
# Of a transformer only products pay: between them ONNX Runtime's float kernels are fused.
PRODUCTS = ["MatMul", "Gemm"]


def contenders(case: Case) -> list[Contender]:
    versions = versions_of("onnxruntime", "onnx", "jax2onnx")
    found = [("float32", FLOAT, build_float)]
    if DYNAMIC in case.kinds:
        found.append(("int8 dynamic", DYNAMIC, build_dynamic))
    if STATIC in case.kinds:
        found.append(("int8 static", STATIC, build_static))
    if WEIGHTS8 in case.kinds:
        found.append(("int8 blocks", WEIGHTS8, partial(build_blocks, bits=8)))
    if WEIGHTS4 in case.kinds:
        found.append(("int4 blocks", WEIGHTS4, partial(build_blocks, bits=4)))
    if case.family == "product":
        found = found[1:]
    return [
        Contender(f"ONNX Runtime {name}", "onnxruntime", kind, f"ort {name}", build, versions)
        for name, kind, build in found
    ]


def build_float(source: Source, folder: Path) -> str:
    shutil.copyfile(source.onnx, folder / "model.onnx")
    return "model.onnx"


def build_dynamic(source: Source, folder: Path) -> str:
    """Activations u8 per tensor, with a range of each call; weights s8 per channel."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        _prepared(source, folder),
        folder / "model.onnx",
        per_channel=True,
        reduce_range=False,  # there is VNNI, where nothing saturates
        weight_type=QuantType.QInt8,
    )
    return "model.onnx"


def build_static(source: Source, folder: Path, form: str = "QDQ") -> str:
    """Activations u8 per tensor with calibrated ranges, the zero point 0 after a ReLU.

    `form` QOperator: operators on integers, `QLinearConv` and so on, in place of Q/DQ pairs.
    """
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static

    prepared = _prepared(source, folder)
    quantize_static(
        prepared,
        folder / "model.onnx",
        _reader(source, prepared),
        quant_format=QuantFormat[form],
        op_types_to_quantize=None if source.case.family == "convolution" else PRODUCTS,
        per_channel=True,
        reduce_range=False,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        extra_options={"ActivationSymmetric": False, "WeightSymmetric": True},
    )
    return "model.onnx"


def build_blocks(source: Source, folder: Path, bits: int) -> str:
    """`MatMulNBits`, symmetric, blocks of 32, products in int8."""
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import (
        DefaultWeightOnlyQuantConfig,
        MatMulNBitsQuantizer,
    )

    config = DefaultWeightOnlyQuantConfig(
        block_size=BLOCK, is_symmetric=True, accuracy_level=4, bits=bits
    )
    quantizer = MatMulNBitsQuantizer(onnx.load(source.onnx), bits=bits, algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file(str(folder / "model.onnx"))
    return "model.onnx"


def _prepared(source: Source, folder: Path) -> Path:
    """Shapes inferred, as the quantizers ask for; optimized it is already. Scales by channel are of
    version 13 of the operators: older files are brought to it."""
    import onnx
    from onnx import version_converter
    from onnxruntime.quantization.shape_inference import quant_pre_process

    path = source.folder / "prepared.onnx"
    if not path.exists():
        model = onnx.load(source.onnx)
        version = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
        if version < BY_CHANNEL:
            model = version_converter.convert_version(model, BY_CHANNEL)
        quant_pre_process(model, path, skip_optimization=True, skip_symbolic_shape=True)
    return path


def _reader(source: Source, path: Path) -> Any:
    import onnx
    from onnxruntime.quantization import CalibrationDataReader

    names = [i.name for i in onnx.load(path).graph.input]

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.calls = self.feed()

        def feed(self) -> Iterator[dict[str, Any]]:
            for inputs in source.onnx_inputs(source.calibration):
                yield dict(zip(names, inputs, strict=True))

        def get_next(self) -> dict[str, Any] | None:
            return next(self.calls, None)

    return Reader()
