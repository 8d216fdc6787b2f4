"""TFLite flatbuffers (`.tflite`, as LiteRT runs them) of an integer network, bit for bit.

Schema: https://github.com/google-ai-edge/LiteRT/blob/main/litert/core/schema/schema.fbs.
TFLite states no mantissas: kernels derive them from float32 scales, `input * weight / output` in
float64. A file is written only where that gives the mantissas of the integer program. Reference
kernels round twice (`double`). XNNPACK, LiteRT's default, rounds a product of float32 numbers once:
`single` but for about one result of a million.

Products with weights are CONV_2D whatever they were: FULLY_CONNECTED has other mantissas. Sums are
depthwise convolutions by ones: MEAN has an arithmetic of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.device.forms.canonical import Simple
from jq.device.forms.flatbuffer import Schema
from jq.device.forms.table import Ends
from jq.device.network import Tensor
from jq.formats.requantize import Rescaling, multiplier

# Each operator's number, version and options.
_STRIDES = "padding i8, stride_w i32, stride_h i32"
OPERATORS = {
    "ADD": (0, 2, "AddOptions"),
    "BATCH_MATMUL": (126, 2, "BatchMatMulOptions"),
    "CAST": (53, 1, "CastOptions"),
    "CONCATENATION": (2, 2, "ConcatenationOptions"),
    "CONV_2D": (3, 3, "Conv2DOptions"),
    "DEPTHWISE_CONV_2D": (4, 3, "DepthwiseConv2DOptions"),
    "DEQUANTIZE": (6, 2, "DequantizeOptions"),
    "GATHER": (36, 2, "GatherOptions"),
    "MAXIMUM": (55, 2, "MaximumMinimumOptions"),
    "MAX_POOL_2D": (17, 2, "Pool2DOptions"),
    "MINIMUM": (57, 2, "MaximumMinimumOptions"),
    "MUL": (18, 2, "MulOptions"),
    "PADV2": (60, 2, "PadV2Options"),
    "QUANTIZE": (114, 2, "QuantizeOptions"),
    "REDUCE_MAX": (82, 2, "ReducerOptions"),
    "REDUCE_MIN": (89, 2, "ReducerOptions"),
    "RESHAPE": (22, 1, "ReshapeOptions"),
    "REVERSE_V2": (105, 2, "ReverseV2Options"),
    "SLICE": (65, 2, "SliceOptions"),
    "SUB": (41, 2, "SubOptions"),
    "TILE": (69, 2, "TileOptions"),
    "TRANSPOSE": (39, 2, "TransposeOptions"),
    "TRANSPOSE_CONV": (67, 3, "TransposeConvOptions"),
}
_OPTIONS = {
    "Conv2DOptions": (
        1,
        f"{_STRIDES}, activation i8, dilation_w i32, dilation_h i32, quantized_bias_type i8",
    ),
    "DepthwiseConv2DOptions": (
        2,
        f"{_STRIDES}, depth_multiplier i32, activation i8, dilation_w i32, dilation_h i32",
    ),
    "Pool2DOptions": (5, f"{_STRIDES}, filter_width i32, filter_height i32, activation i8"),
    "ConcatenationOptions": (10, "axis i32, activation i8"),
    "AddOptions": (11, "activation i8, pot_scale_int16 bool"),
    "ReshapeOptions": (17, "new_shape [i32]"),
    "MulOptions": (21, "activation i8"),
    "GatherOptions": (23, "axis i32, batch_dims i32"),
    "TransposeOptions": (26, ""),
    "ReducerOptions": (27, "keep_dims bool"),
    "SubOptions": (28, "activation i8, pot_scale_int16 bool"),
    "CastOptions": (37, "in_data_type i8, out_data_type i8"),
    "DequantizeOptions": (38, ""),
    "MaximumMinimumOptions": (39, ""),
    "PadV2Options": (43, ""),
    "SliceOptions": (48, ""),
    "TransposeConvOptions": (49, f"{_STRIDES}, activation i8"),
    "TileOptions": (51, ""),
    "ReverseV2Options": (81, ""),
    "QuantizeOptions": (89, ""),
    "BatchMatMulOptions": (101, "adj_x bool, adj_y bool, asymmetric_quantize_inputs bool"),
}
_NUMBERED = {number: name for name, (number, _) in _OPTIONS.items()}
SCHEMA = Schema.of(
    """
    Model: version u32, operator_codes [OperatorCode], subgraphs [SubGraph], description string,
        buffers [Buffer]
    OperatorCode: deprecated_builtin_code i8, custom_code string, version i32, builtin_code i32
    SubGraph: tensors [Tensor], inputs [i32], outputs [i32], operators [Operator], name string
    Buffer: data [u8:16]
    Tensor: shape [i32], type i8, buffer u32, name string, quantization Quantization
    Quantization: min [f32], max [f32], scale [f32], zero_point [i64], details union, axis i32
    Operator: opcode_index u32, inputs [i32], outputs [i32], builtin_options union
    """
    + "\n".join(f"{name}: {fields}" for name, (_, fields) in _OPTIONS.items()),
    {"builtin_options": [_NUMBERED.get(i + 1, "") for i in range(max(_NUMBERED))]},
    b"TFL3",
)
TYPES = {"float32": 0, "int32": 2, "int16": 7, "int8": 9}
VALID = 1  # the other padding, SAME, is not used: what is padded is written out
RELU = 1
DESCRIPTION = {r: f"int8, a rescale rounds: {r}" for r in ("double", "single")}


def write(
    steps: Sequence[Simple],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    rescaling: Rescaling,
    ends: Ends = "int8",
) -> bytes:
    """The file; float ends are QUANTIZE and DEQUANTIZE.

    Raises:
        UserError: a step that TFLite does not have with these bits, by the name of its layer.
    """
    writer = _Writer(rescaling, {t.name for s in steps for t in (*s.inputs, s.output)})
    first = [writer.place(t) for t in inputs]
    for step in steps:
        writer.step(step)
    last = [writer.place(t) for t in outputs]
    graph = {
        "tensors": writer.tensors,
        "inputs": first,
        "outputs": last,
        "operators": writer.operators,
        "name": "main",
    }
    codes = [
        {"deprecated_builtin_code": min(number, 127), "version": version, "builtin_code": number}
        for number, version, _ in map(OPERATORS.__getitem__, writer.codes)
    ]
    model = {
        "version": 3,
        "operator_codes": codes,
        "subgraphs": [graph],
        "description": DESCRIPTION[rescaling.rounding],
        "buffers": writer.buffers,
    }
    return SCHEMA.encode("Model", model)


def run(data: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Results of LiteRT's reference kernels for a file that rounds twice, of XNNPACK for others.

    Raises:
        UserError: LiteRT is not installed.
    """
    try:
        litert = import_module("ai_edge_litert.interpreter")
    except ImportError as error:
        raise UserError(
            "LiteRT is not installed", hint="install the package ai-edge-litert"
        ) from error
    reference = DESCRIPTION["double"].encode() in data
    types = litert.OpResolverType
    kernels = types.BUILTIN_REF if reference else types.AUTO
    interpreter = litert.Interpreter(
        model_content=data, experimental_op_resolver_type=kernels, num_threads=1
    )
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


class _Writer:
    """Collects operators, tensors and buffers; tensors are known by their names."""

    def __init__(self, rescaling: Rescaling, names: set[str]) -> None:
        self.rescaling = rescaling
        self.names = names
        self.axes: dict[str, int] = {}  # of scales by channel
        self.operators: list[dict[str, Any]] = []
        self.tensors: list[dict[str, Any]] = []
        self.buffers: list[dict[str, Any]] = [{}]  # the first is empty, by the format
        self.codes: list[str] = []
        self.places: dict[str, int] = {}
        self.known: dict[str, Tensor] = {}
        self.count = 0
        self.name = ""  # of the layer that is written, for messages

    def step(self, step: Simple) -> None:
        self.name = step.name
        write = getattr(self, f"_{step.kind}", None)
        if write is None:
            raise self.lacking(step.kind.replace("_", " "))
        types = {t.dtype for t in (*step.inputs, step.output)}
        if step.kind not in ("quantize", "dequantize") and types not in ({"int8"}, {"float32"}):
            raise self.lacking(f"{step.kind.replace('_', ' ')} of {', '.join(sorted(types))}")
        write(step)

    def lacking(self, what: str) -> UserError:
        """The message that TFLite has no such thing."""
        return UserError(
            f"{what} has no form in TFLite with the same bits",
            op=self.name,
            hint="cut the model there, or export to another form",
        )

    # Tensors and operators

    def place(self, tensor: Tensor) -> int:
        """The number of a tensor; it is added where it is new."""
        if tensor.name in self.places:
            return self.places[tensor.name]
        buffer = 0
        if tensor.data is not None:
            data = np.ascontiguousarray(tensor.data, tensor.dtype)
            self.buffers.append({"data": np.frombuffer(data.tobytes(), np.uint8)})
            buffer = len(self.buffers) - 1
        found: dict[str, Any] = {
            "shape": list(tensor.shape),
            "type": TYPES[tensor.dtype],
            "buffer": buffer,
            "name": tensor.name,
        }
        if tensor.scale is not None:
            scale = tensor.scale.astype(np.float32).reshape(-1)
            zero = np.full(scale.size, tensor.zero)
            axis = self.axes.get(tensor.name, 0)
            found["quantization"] = {"scale": scale, "zero_point": zero, "axis": axis}
        self.tensors.append(found)
        self.known[tensor.name] = tensor
        self.places[tensor.name] = len(self.tensors) - 1
        return self.places[tensor.name]

    def fresh(self, like: Tensor, shape: Sequence[int], **other: Any) -> Tensor:
        """A tensor between operators, with the codes of another."""
        return replace(like, name=self.new(like.name), shape=tuple(shape), data=None, **other)

    def constant(self, value: Any, dtype: str = "int32", scale: Any = None) -> Tensor:
        """A constant without a name of its own."""
        data = np.asarray(value, dtype)
        return Tensor(self.new("constant"), data.shape, dtype, scale, data=data)

    def new(self, base: str) -> str:
        """A name that no other tensor has."""
        while True:
            self.count += 1
            if (name := f"{base}:{self.count}") not in self.names:
                return name

    def op(self, kind: str, inputs: Sequence[Tensor], output: Tensor, **options: Any) -> Tensor:
        """Adds an operator."""
        if kind not in self.codes:
            self.codes.append(kind)
        places = [self.place(t) for t in inputs]
        name = OPERATORS[kind][2]
        self.operators.append(
            {
                "opcode_index": self.codes.index(kind),
                "inputs": places,
                "outputs": [self.place(output)],
                "builtin_options": (name, options),
            }
        )
        return output

    # Rescales

    def weight_scale(self, step: Simple, x: Tensor, given: np.ndarray | None) -> np.ndarray:
        """The float32 scale from which kernels derive the step's mantissas: the weight's own,
        `given`, or the nearest to what the factor asks for."""
        assert step.out is not None
        assert x.scale is not None
        factor = step.numbers["factor"].reshape(-1)
        source, result = (
            np.float64(np.float32(v)) for v in (x.scale.reshape(-1)[0], step.out.scale)
        )
        wanted = factor * result / source
        nearest = wanted.astype(np.float32)
        below, above = (
            np.nextafter(nearest, np.float32(0)),
            np.nextafter(nearest, np.float32(np.inf)),
        )
        choices = [nearest, below, above]
        if given is not None:
            choices.insert(0, np.broadcast_to(given.reshape(-1), factor.shape))
        best = nearest.copy()
        right = np.zeros(factor.shape, bool)
        for choice in choices:
            derived = multiplier(source * choice.astype(np.float64) / result)
            same = np.all([a == b for a, b in zip(derived, multiplier(factor), strict=True)], 0)
            best = np.where(same & ~right, choice, best)
            right |= same
        if not right.all():
            raise self.lacking(f"a factor of {wanted[~right][0]:.9g} that is no float32 scale")
        return best

    def result(self, step: Simple) -> tuple[Tensor, dict[str, int], list[tuple[str, int]]]:
        """What an operator writes, its fused activation, and the limits that follow it."""
        out, output = step.out, step.output
        assert out is not None
        if (step.numbers["behind"] != 0).any():
            raise self.lacking("a bias that no accumulator holds")
        scale = np.array([out.scale], np.float32)
        output = replace(output, scale=scale, zero_point=np.array([out.zero_point], np.int32))
        if (out.low, out.high) == (-128, 127):
            return output, {}, []
        if (out.low, out.high) == (out.zero_point, 127):
            return output, {"activation": RELU}, []
        limits = [("MAXIMUM", out.low), ("MINIMUM", out.high)]
        return output, {}, [(k, v) for k, v in limits if v not in (-128, 127)]

    def finish(self, step: Simple, kind: str, inputs: Sequence[Tensor], **options: Any) -> None:
        """An operator that rescales, and the limits of its codes."""
        output, activation, limits = self.result(step)
        made = self.fresh(output, output.shape) if limits else output
        self.op(kind, inputs, made, **options, **activation)
        for i, (limit, code) in enumerate(limits):
            ones = np.full([1] * len(output.shape), code)
            bound = replace(self.constant(ones, "int8", output.scale), zero_point=output.zero_point)
            last = output if i == len(limits) - 1 else self.fresh(output, output.shape)
            made = self.op(limit, [made, bound], last)

    # Products

    def padded(self, x: Tensor, padding: Sequence[tuple[int, int]], value: int) -> Tensor:
        """NHWC codes with their spatial axes padded."""
        if not np.any(padding):
            return x
        shape = [x.shape[0], *(n + sum(p) for n, p in zip(x.shape[1:3], padding, strict=True))]
        pairs = self.constant([(0, 0), *padding, (0, 0)])
        code = replace(self.constant([value], "int8", x.scale), zero_point=x.zero_point)
        return self.op("PADV2", [x, pairs, code], self.fresh(x, [*shape, x.shape[3]]))

    def weights(self, step: Simple, x: Tensor, w: Tensor, channels: int) -> list[Tensor]:
        """A filter and its bias, with the scales that give the step's mantissas."""
        if w.zero_point is not None and w.zero_point.any():
            raise self.lacking("a weight with a zero point")
        bias, factor = (np.broadcast_to(step.numbers[k], channels) for k in ("bias", "factor"))
        wide = replace(step, numbers=step.numbers | {"bias": bias, "factor": factor})
        scale = self.weight_scale(wide, x, w.scale)
        name = self.new(w.name)
        self.axes[name] = 3 if step.kind == "depthwise" else 0
        assert x.scale is not None
        of_sums = (x.scale.reshape(-1)[:1] * scale).astype(np.float32)
        return [replace(w, name=name, scale=scale), self.constant(bias, "int32", of_sums)]

    def _conv2d(self, step: Simple) -> None:
        x, w = step.inputs
        x = self.padded(x, step.attributes["padding"], x.zero)
        weights = self.weights(step, x, w, w.shape[0])
        self.finish(step, "CONV_2D", [x, *weights], **_geometry(step.attributes))

    def _depthwise(self, step: Simple) -> None:
        x, w = step.inputs
        height, width, channels, many = w.shape
        x = self.padded(x, step.attributes["padding"], x.zero)
        w = replace(w, shape=(1, height, width, channels * many))
        w = replace(w, data=w.values.reshape(w.shape))
        weights = self.weights(step, x, w, channels * many)
        options = {**_geometry(step.attributes), "depth_multiplier": many}
        self.finish(step, "DEPTHWISE_CONV_2D", [x, *weights], **options)

    def _transposed(self, step: Simple) -> None:
        """Every window, then what is cut off."""
        x, w = step.inputs
        stride, cut = step.attributes["stride"], step.attributes["out_padding"]
        if np.max(cut) > 0:
            raise self.lacking("a transposed convolution with more than its windows")
        sizes = [
            (n - 1) * s + k for n, s, k in zip(x.shape[1:3], stride, w.shape[1:3], strict=True)
        ]
        whole = self.fresh(step.output, (x.shape[0], *sizes, w.shape[0]))
        weights = self.weights(step, x, w, w.shape[0])
        made = replace(step, output=whole if np.any(cut) else step.output)
        options = {"padding": VALID, "stride_h": stride[0], "stride_w": stride[1]}
        shape = self.constant(made.output.shape)
        self.finish(made, "TRANSPOSE_CONV", [shape, weights[0], x, weights[1]], **options)
        if np.any(cut):
            start = [0, -cut[0][0], -cut[1][0], 0]
            self.slice(self.known[whole.name], start, step.output)

    def _matmul(self, step: Simple) -> None:
        a, b = step.inputs
        self.scales(step, a, b)
        if step.numbers["bias"].any():
            raise self.lacking("a product of two activations with a bias")
        self.finish(step, "BATCH_MATMUL", [a, b], adj_x=False, adj_y=False)

    def scales(self, step: Simple, *xs: Tensor) -> None:
        """Refuses a factor that is not the product of the scales by the result's."""
        assert step.out is not None
        grids = [x.scale for x in xs if x.scale is not None]
        product = np.prod([np.float64(g.reshape(-1)[0]) for g in grids])
        if any(g.size > 1 for g in grids):
            raise self.lacking("a product with several scales")
        self.equal(step, product / np.float64(np.float32(step.out.scale)))

    def equal(self, step: Simple, factor: Any) -> None:
        """Refuses a step with another mantissa or exponent than a factor has."""
        pairs = zip(multiplier(factor), multiplier(step.numbers["factor"]), strict=True)
        if not all((a == b).all() for a, b in pairs):
            raise self.lacking("a factor that its scales do not give")

    # Element by element

    def _rescale(self, step: Simple) -> None:
        """By a depthwise convolution: a factor need not be a quotient of scales."""
        (x,), bits = step.inputs, int(step.numbers["bits"].reshape(()))
        if not 0 <= bits <= 6:
            raise self.lacking("a rescale with more than 6 fractional bits")
        self._sums(step, x, (1, 1), 1 << bits)

    def _add(self, step: Simple) -> None:
        self._of_two(step, "ADD")

    def _subtract(self, step: Simple) -> None:
        self._of_two(step, "SUB")

    def _of_two(self, step: Simple, kind: str) -> None:
        """Both terms in units of twice the larger scale, shifted by 20 bits."""
        assert step.out is not None
        if self.rescaling.rounding != "double":
            raise self.lacking("a sum of two tensors that is rounded once")
        if step.numbers["bias"].any() or int(step.numbers["bits"].reshape(())) != 20:
            raise self.lacking("a sum with a bias or with other fractional bits than 20")
        a, b = (np.float64(t.scale.reshape(-1)[0]) for t in step.inputs if t.scale is not None)
        factor = 2 * max(a, b) / (2**20 * np.float64(np.float32(step.out.scale)))
        self.equal(step, factor)
        self.finish(step, kind, step.inputs)

    def _multiply(self, step: Simple) -> None:
        if step.numbers["bias"].any() or int(step.numbers["bits"].reshape(())):
            raise self.lacking("a product with a bias or with fractional bits")
        self.scales(step, *step.inputs)
        self.finish(step, "MUL", step.inputs)

    def _table(self, step: Simple) -> None:
        (x,), out = step.inputs, step.out
        assert out is not None
        codes = np.clip(np.rint(step.numbers["steps"]) + out.zero_point, out.low, out.high)
        output = replace(
            step.output,
            scale=np.array([out.scale], np.float32),
            zero_point=np.array([out.zero_point], np.int32),
        )
        table = replace(self.constant(codes, "int8", output.scale), zero_point=output.zero_point)
        wide = {"dtype": "int32", "scale": None}
        index = self.op(
            "CAST", [x], self.fresh(x, x.shape, **wide), in_data_type=9, out_data_type=2
        )
        least = self.constant(np.full([1] * len(x.shape), 128))
        index = self.op("ADD", [index, least], self.fresh(index, x.shape))
        self.op("GATHER", [table, index], output, axis=0)

    def _maximum(self, step: Simple) -> None:
        self.op("MAXIMUM", self._same(step), step.output)

    def _minimum(self, step: Simple) -> None:
        self.op("MINIMUM", self._same(step), step.output)

    def _same(self, step: Simple) -> list[Tensor]:
        """Operands that share the codes of the result; a constant takes them."""
        made = step.output
        return [
            replace(t, scale=made.scale, zero_point=made.zero_point) if t.data is not None else t
            for t in step.inputs
        ]

    # Sums and extremes

    def _sum_pool(self, step: Simple) -> None:
        self._sums(step, step.inputs[0], step.attributes["window"], 1)

    def _sum(self, step: Simple) -> None:
        """Neighbouring axes become one that is a window."""
        (x,), axes = step.inputs, sorted(step.attributes["axes"])
        if axes != list(range(axes[0], axes[-1] + 1)):
            raise self.lacking("a sum along axes that are not neighbours")
        outer, inner = (
            int(np.prod(x.shape[a])) for a in (slice(axes[0]), slice(axes[-1] + 1, None))
        )
        count = int(np.prod([x.shape[a] for a in axes]))
        flat = self.reshaped(x, self.fresh(x, (outer, count, 1, inner)))
        made = self.fresh(step.output, (outer, 1, 1, inner))
        geometry = {"stride": [1, 1], "padding": [(0, 0), (0, 0)]}
        self._sums(replace(step, output=made, attributes=geometry), flat, (count, 1), 1)
        self.reshaped(self.known[made.name], step.output)

    def _sums(self, step: Simple, x: Tensor, window: Sequence[int], one: int) -> None:
        """Sums of windows: a depthwise convolution by a code; what is padded adds nothing."""
        if len(x.shape) != 4:
            flat = self.reshaped(x, self.fresh(x, (int(np.prod(x.shape)), 1, 1, 1)))
            made = self.fresh(step.output, flat.shape)
            self._sums(replace(step, output=made), flat, window, one)
            self.reshaped(self.known[made.name], step.output)
            return
        filters = np.full((*window, x.shape[3], 1), one, np.int8)
        w = Tensor(f"{step.name}:ones", filters.shape, "int8", data=filters)
        geometry = {"stride": [1, 1], "padding": [(0, 0), (0, 0)], **step.attributes}
        geometry["dilation"] = [1, 1]
        self._depthwise(replace(step, kind="depthwise", inputs=(x, w), attributes=geometry))

    def _max_pool(self, step: Simple) -> None:
        x, given = step.inputs[0], step.attributes
        x = self.padded(x, given["padding"], -128)
        height, width = given["window"]
        options = {
            "padding": VALID,
            "stride_h": given["stride"][0],
            "stride_w": given["stride"][1],
            "filter_height": height,
            "filter_width": width,
        }
        self.op("MAX_POOL_2D", [x], step.output, **options)

    def _max(self, step: Simple) -> None:
        axis = self.constant([step.attributes["axis"]])
        self.op("REDUCE_MAX", [step.inputs[0], axis], step.output, keep_dims=True)

    def _min(self, step: Simple) -> None:
        axis = self.constant([step.attributes["axis"]])
        self.op("REDUCE_MIN", [step.inputs[0], axis], step.output, keep_dims=True)

    # Moves, and float ends

    def _quantize(self, step: Simple) -> None:
        self.op("QUANTIZE", step.inputs, step.output)

    def _dequantize(self, step: Simple) -> None:
        self.op("DEQUANTIZE", step.inputs, step.output)

    def reshaped(self, x: Tensor, output: Tensor) -> Tensor:
        """The same codes in the shape of `output`."""
        shape = self.constant(output.shape)
        return self.op("RESHAPE", [x, shape], output, new_shape=list(output.shape))

    def slice(self, x: Tensor, start: Sequence[int], output: Tensor) -> None:
        """A part of a tensor."""
        self.op("SLICE", [x, self.constant(start), self.constant(output.shape)], output)

    def _reshape(self, step: Simple) -> None:
        self.reshaped(step.inputs[0], step.output)

    def _transpose(self, step: Simple) -> None:
        order = self.constant(step.attributes["permutation"])
        self.op("TRANSPOSE", [step.inputs[0], order], step.output)

    def _reverse(self, step: Simple) -> None:
        axis = self.constant([step.attributes["axis"]])
        self.op("REVERSE_V2", [step.inputs[0], axis], step.output)

    def _concatenate(self, step: Simple) -> None:
        self.op("CONCATENATION", self._same(step), step.output, axis=step.attributes["axis"])

    def _slice(self, step: Simple) -> None:
        self.slice(step.inputs[0], step.attributes["start"], step.output)

    def _pad(self, step: Simple) -> None:
        (x,), given = step.inputs, step.attributes
        code = replace(self.constant([given["value"]], "int8", x.scale), zero_point=x.zero_point)
        self.op("PADV2", [x, self.constant(given["padding"]), code], step.output)

    def _tile(self, step: Simple) -> None:
        repeats = self.constant(step.attributes["repeats"])
        self.op("TILE", [step.inputs[0], repeats], step.output)


def _geometry(given: dict[str, Any]) -> dict[str, int]:
    (stride_h, stride_w), (dilation_h, dilation_w) = given["stride"], given["dilation"]
    return {
        "padding": VALID,
        "stride_h": stride_h,
        "stride_w": stride_w,
        "dilation_h": dilation_h,
        "dilation_w": dilation_w,
    }
