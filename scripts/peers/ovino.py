"""OpenVINO: float32 and bfloat16, ONNX Runtime's int8 program, NNCF's, compressed weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from peers import ort
from peers.case import BFLOAT16, DYNAMIC, FLOAT, STATIC, WEIGHTS4, WEIGHTS8, Case, Contender, Source
from peers.installed import versions_of

HINTS = ("f32", "bf16")
Build = Callable[[Source, Path], str]
# With compressed weights OpenVINO quantizes the activations itself, at run time: so many that
# follow each other get a scale.
GROUP = "DYNAMIC_QUANTIZATION_GROUP_SIZE"
WHOLE_ROW = str(2**64 - 1)


def contenders(case: Case) -> list[Contender]:
    versions = versions_of("openvino", "nncf", "onnxruntime", "onnx", "jax2onnx")
    found = []
    for program, kind, build, options in _programs(case):
        for hint in HINTS[:1] if case.family == "product" else HINTS:
            found.append(
                Contender(
                    name=f"OpenVINO {hint} {program}".strip(),
                    runtime="openvino",
                    kind=BFLOAT16 if (hint, kind) == ("bf16", FLOAT) else kind,
                    program=f"ov {program}".strip(),
                    build=build,
                    versions=versions,
                    options={"INFERENCE_PRECISION_HINT": hint, **options},
                )
            )
    return found


def _programs(case: Case) -> Iterator[tuple[str, str, Build, dict[str, str]]]:
    weights8, weights4 = partial(build_weights, bits=8), partial(build_weights, bits=4)
    if case.family != "product":
        yield "", FLOAT, build_float, {}
    if STATIC in case.kinds:
        yield "int8 from NNCF", STATIC, build_nncf, {}
        if case.family != "product":
            yield "int8 from ORT", STATIC, build_ort, {}
    if DYNAMIC in case.kinds:
        yield "int8 dynamic", DYNAMIC, weights8, {GROUP: WHOLE_ROW}
    if WEIGHTS8 in case.kinds:
        yield "int8 weights", WEIGHTS8, weights8, {GROUP: str(ort.BLOCK)}
    if WEIGHTS4 in case.kinds:
        yield "int4 weights", WEIGHTS4, weights4, {GROUP: str(ort.BLOCK)}


def build_float(source: Source, folder: Path) -> str:
    return ort.build_float(source, folder)


def build_ort(source: Source, folder: Path) -> str:
    return ort.build_static(source, folder)


def build_nncf(source: Source, folder: Path) -> str:
    import nncf
    import openvino as ov

    transformer = source.case.family != "convolution"
    quantized = nncf.quantize(
        ov.Core().read_model(source.onnx),
        nncf.Dataset([dict(enumerate(x)) for x in source.onnx_inputs(source.calibration)]),
        preset=nncf.QuantizationPreset.MIXED,
        model_type=nncf.ModelType.TRANSFORMER if transformer else None,
        fast_bias_correction=True,
    )
    ov.save_model(quantized, folder / "model.xml", compress_to_fp16=False)
    return "model.xml"


def build_weights(source: Source, folder: Path, bits: int) -> str:
    """NNCF's compressed weights; OpenVINO quantizes the activations of a group by itself."""
    import nncf
    import openvino as ov

    modes = nncf.CompressWeightsMode
    model = ov.Core().read_model(source.onnx)
    if bits == 8:
        compressed = nncf.compress_weights(model, mode=modes.INT8_SYM)
    else:
        compressed = nncf.compress_weights(
            model, mode=modes.INT4_SYM, ratio=1.0, group_size=ort.BLOCK, all_layers=True
        )
    ov.save_model(compressed, folder / "model.xml", compress_to_fp16=False)
    return "model.xml"
