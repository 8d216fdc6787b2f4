"""TFLite flatbuffers (`.tflite`, as LiteRT runs them) of an integer network, bit for bit.

Schema: https://github.com/google-ai-edge/LiteRT/blob/main/litert/core/schema/schema.fbs.
TFLite states no mantissas: kernels derive them from float32 scales, `input * weight / output`. A
file is written only where that gives the numbers of the integer program. Reference kernels derive
them in float64 and round twice (`double`); XNNPACK, LiteRT's default, has float32 throughout.

Products with weights are CONV_2D whatever they were: FULLY_CONNECTED has other mantissas. Sums are
depthwise convolutions by ones: MEAN has an arithmetic of its own."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.base.registry import need
from jq.device.forms.table import Arrays, Content
from jq.device.forms.tflite.builder import Builder
from jq.device.forms.tflite.writer import Writer
from jq.formats.requantize import DOUBLE
from jq.frontends.tflite.schema import OPERATORS, SCHEMA

DESCRIPTION = {r: f"int8, a rescale rounds: {r}" for r in ("double", "float32")}


def write(content: Content) -> bytes:
    """The file; float ends are QUANTIZE and DEQUANTIZE.

    Raises:
        UserError: a step that TFLite does not have with these bits, by the name of its layer."""
    rescaling, steps = content.rescaling, content.steps
    if rescaling.rounding not in DESCRIPTION:
        hint = "give the target litert or litert-reference"
        raise UserError(f"TFLite has no kernels that round {rescaling.rounding}", hint=hint)
    writer = Writer(rescaling, {t.name for s in steps for t in (*s.inputs, s.output)})
    first = [writer.place(t) for t in content.inputs]
    for step in steps:
        others = step.kind == "matmul_own" or "int16" in [
            t.dtype for t in (*step.inputs, step.output)
        ]
        writer.use(DOUBLE if others else rescaling)  # XNNPACK has no kernels of these
        writer.step(step)
    writer.use(rescaling)
    return file(writer, first, [writer.place(t) for t in content.outputs])


def file(writer: Builder, first: Sequence[int], last: Sequence[int]) -> bytes:
    """The file of what was put together, from some tensors to others."""
    graph: dict[str, Any] = {"name": "main", "inputs": first, "outputs": last}
    graph |= {"tensors": writer.tensors, "operators": writer.operators}
    codes = [
        {"deprecated_builtin_code": min(number, 127), "version": version, "builtin_code": number}
        for number, version, _ in map(OPERATORS.__getitem__, writer.codes)
    ]
    model = {
        "version": 3,
        "operator_codes": codes,
        "subgraphs": [graph],
        "description": DESCRIPTION[writer.rescaling.rounding],
        "buffers": writer.buffers,
    }
    return SCHEMA.encode("Model", model)


def run(data: bytes, calls: Sequence[Arrays]) -> list[list[np.ndarray]]:
    """Results of LiteRT's reference kernels for a file that rounds twice, of XNNPACK for others.

    Raises:
        UserError: LiteRT is not installed."""
    litert = need("ai_edge_litert.interpreter", "export", "running a TFLite file needs")
    reference = DESCRIPTION["double"].encode() in data
    types = litert.OpResolverType
    kernels = types.BUILTIN_REF if reference else types.AUTO
    interpreter = litert.Interpreter(
        model_content=data, experimental_op_resolver_type=kernels, num_threads=1
    )
    interpreter.allocate_tensors()
    results, last = [], [d["index"] for d in interpreter.get_output_details()]
    for inputs in calls:
        for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        results.append([interpreter.get_tensor(i) for i in last])
    return results
