"""TOSA 1.0 flatbuffers (`.tosa`) of an integer network, bit for bit.

Specification: https://www.mlplatform.org/tosa/tosa_spec.html. A rescale is RESCALE with the
mantissa and `shift = 31 - exponent`; DOUBLE_ROUND and SINGLE_ROUND are the two roundings of
`jq.formats.requantize`. Ends are integers: TOSA's integer profile has no floats.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from jq.base.errors import CompilerError, UserError
from jq.base.system.files import temporary_folder
from jq.device.forms.canonical import Simple
from jq.device.forms.flatbuffer import Schema
from jq.device.forms.table import Ends
from jq.device.network import Tensor
from jq.formats.requantize import Rescaling, multiplier

# Operators by number, from 1 on; the table of each one's attributes has its name.
_OPERATORS = """
ARGMAX AVG_POOL2D CONV2D CONV3D DEPTHWISE_CONV2D FFT2D MATMUL MAX_POOL2D RFFT2D
TRANSPOSE_CONV2D CLAMP ERF SIGMOID TANH ADD ARITHMETIC_RIGHT_SHIFT BITWISE_AND BITWISE_OR
BITWISE_XOR INTDIV LOGICAL_AND LOGICAL_LEFT_SHIFT LOGICAL_RIGHT_SHIFT LOGICAL_OR LOGICAL_XOR
MAXIMUM MINIMUM MUL POW SUB TABLE ABS BITWISE_NOT CEIL CLZ COS EXP FLOOR LOG LOGICAL_NOT NEGATE
RECIPROCAL RSQRT SIN SELECT EQUAL GREATER GREATER_EQUAL REDUCE_ALL REDUCE_ANY REDUCE_MAX
REDUCE_MIN REDUCE_PRODUCT REDUCE_SUM CONCAT PAD RESHAPE REVERSE SLICE TILE TRANSPOSE GATHER
SCATTER RESIZE CAST RESCALE CONST IDENTITY CUSTOM COND_IF WHILE_LOOP VARIABLE VARIABLE_WRITE
VARIABLE_READ CONST_SHAPE
"""
OPERATORS = _OPERATORS.split()
_WINDOW = "pad [i32], stride [i32], dilation [i32], local_bound bool, acc_type u32"
_WITH_ATTRIBUTES = {
    "CONV2D": _WINDOW,
    "DEPTHWISE_CONV2D": _WINDOW,
    "TRANSPOSE_CONV2D": "out_pad [i32], stride [i32], local_bound bool, acc_type u32",
    "MAX_POOL2D": "kernel [i32], stride [i32], pad [i32], nan_mode u32",
    "CLAMP": "min_val [u8:8], max_val [u8:8], nan_mode u32",
    "ARITHMETIC_RIGHT_SHIFT": "round bool",
    "MAXIMUM": "nan_mode u32",
    "MINIMUM": "nan_mode u32",
    **dict.fromkeys(("REDUCE_SUM", "CONCAT", "REVERSE"), "axis i32"),
    **dict.fromkeys(("REDUCE_MAX", "REDUCE_MIN"), "axis i32, nan_mode u32"),
    "TRANSPOSE": "perms [i32]",
    "RESIZE": "mode u32",
    "RESCALE": "scale32 bool, rounding_mode u32, per_channel bool, input_unsigned bool,"
    " output_unsigned bool",
}
SCHEMA = Schema.of(
    """
    Version: major i32, minor i32, patch i32, draft bool
    Tensor: name string, shape [i32], type u32, data [u8:8]
    Shape: name string, rank u32, data [u8:8]
    Operator: op u32, attribute union, inputs [string], outputs [string]
    Block: name string, operators [Operator], tensors [Tensor], inputs [string],
        outputs [string], shapes [Shape]
    Region: name string, blocks [Block]
    Graph: version Version, regions [Region]
    """
    + "\n".join(f"{name}: {_WITH_ATTRIBUTES.get(name, '')}" for name in OPERATORS),
    {"attribute": OPERATORS},
    b"TOSA",
)
TYPES = {"bool": 1, "int4": 2, "int8": 3, "int16": 4, "int32": 5, "int48": 6, "shape": 10}
PROPAGATE = 1  # NaN mode: of integers it means nothing
ROUNDINGS = {"single": 1, "double": 3}
WHOLE = np.array([1.0])  # a rescale by one: a conversion


def write(
    steps: Sequence[Simple],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    rescaling: Rescaling,
    ends: Ends = "int8",
) -> bytes:
    """The file.

    Raises:
        UserError: a step that TOSA's integer profile does not have, by the name of its layer.
    """
    if ends != "int8":
        raise UserError("TOSA's integer profile has no floats", hint="give --ends int8")
    writer = _Writer(rescaling)
    for tensor in inputs:
        writer.tensor(tensor.name, tensor.shape, tensor.dtype)
    for step in steps:
        writer.step(step)
    block = {
        "name": "main",
        "operators": writer.operators,
        "tensors": writer.tensors,
        "inputs": [t.name for t in inputs],
        "outputs": [t.name for t in outputs],
        "shapes": writer.shapes,
    }
    version = {"major": 1, "minor": 0, "patch": 0, "draft": False}
    graph = {"version": version, "regions": [{"name": "main", "blocks": [block]}]}
    return SCHEMA.encode("Graph", graph)


def run(data: bytes, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of Arm's reference model."""
    if find_spec("tosa_reference_model") is None:
        raise UserError(
            "TOSA's reference model is not installed", hint="pip install --no-deps tosa-tools"
        )
    with temporary_folder() as folder:
        (folder / "model.tosa").write_bytes(data)
        np.savez(folder / "inputs.npz", *inputs)
        script = [sys.executable, "-P", "-c", _REFERENCE, str(folder)]
        ended = subprocess.run(script, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        if ended.returncode:
            said = ended.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
            raise CompilerError(f"TOSA's reference model refuses the file: {said[-1]}")
        with np.load(folder / "outputs.npz") as outputs:
            return [outputs[f"arr_{i}"] for i in range(len(outputs.files))]


# In a process of its own: it prints to standard output, and where it fails it ends its process.
_REFERENCE = """
import pathlib, sys
import numpy as np
import tosa_reference_model
folder = pathlib.Path(sys.argv[1])
inputs = np.load(folder / "inputs.npz")
given = [inputs[f"arr_{i}"] for i in range(len(inputs.files))]
outputs, status = tosa_reference_model.run((folder / "model.tosa").read_bytes(), given)
if outputs is None:
    sys.exit(str(status))
np.savez(folder / "outputs.npz", *outputs)
"""


class _Writer:
    """Collects operators, tensors and shapes; names everything that a network does not."""

    def __init__(self, rescaling: Rescaling) -> None:
        self.rescaling = rescaling
        self.operators: list[dict[str, Any]] = []
        self.tensors: list[dict[str, Any]] = []
        self.shapes: list[dict[str, Any]] = []
        self.constants: dict[Any, str] = {}
        self.sums: dict[Any, str] = {}  # of products that several rescales read
        self.names: set[str] = set()
        self.name = ""  # of the layer that is written, for messages

    def step(self, step: Simple) -> None:
        self.name = step.name
        write = getattr(self, f"_{step.kind}", None)
        if write is None:
            raise UserError(
                f"{step.kind.replace('_', ' ')} has no form in TOSA's integer profile",
                op=step.name,
                hint="cut the model there, or export to another form",
            )
        write(step)

    # What every operator needs

    def tensor(self, name: str, shape: Sequence[int], dtype: str, data: bytes | None = None) -> str:
        found = {"name": name, "shape": list(shape), "type": TYPES[dtype]}
        if data is not None:
            found["data"] = np.frombuffer(data, np.uint8)
        self.tensors.append(found)
        self.names.add(name)
        return name

    def fresh(self) -> str:
        return f"t{len(self.tensors) + len(self.shapes)}"

    def constant(self, values: Any, dtype: str, shape: Sequence[int] | None = None) -> str:
        """A constant tensor; equal ones are one."""
        array = np.asarray(values).astype(dtype)
        array = array.reshape(array.shape if shape is None else shape)
        key = dtype, array.shape, array.tobytes()
        if key not in self.constants:
            name = self.tensor(self.fresh(), array.shape, dtype, array.tobytes())
            self.operators.append(_operator("CONST", {}, [], [name]))
            self.constants[key] = name
        return self.constants[key]

    def shape(self, values: Sequence[int]) -> str:
        key = "shape", tuple(values)
        if key not in self.constants:
            name, data = self.fresh(), np.array(values, "<i8").tobytes()
            row = {"name": name, "rank": len(values), "data": np.frombuffer(data, np.uint8)}
            self.shapes.append(row)
            self.operators.append(_operator("CONST_SHAPE", {}, [], [name]))
            self.constants[key] = name
        return self.constants[key]

    def op(
        self,
        kind: str,
        inputs: Sequence[str],
        output: Tensor | tuple[Sequence[int], str],
        **attributes: Any,
    ) -> str:
        """An operator whose result is a tensor of the network, or one that is named here."""
        if isinstance(output, Tensor):
            name = self.tensor(output.name, output.shape, output.dtype)
        else:
            name = self.tensor(self.fresh(), *output)
        self.operators.append(_operator(kind, attributes, list(inputs), [name]))
        return name

    def of(self, tensor: Tensor) -> str:
        """The name of an operand, which may be a constant."""
        if tensor.data is not None and tensor.name not in self.names:
            return self.constant(tensor.data, tensor.dtype)
        return tensor.name

    # Rescales

    def rescale(
        self,
        x: str,
        kind: str,
        shape: Sequence[int],
        factor: np.ndarray,
        output: Tensor | tuple[Sequence[int], str],
        zeros: tuple[int, int] = (0, 0),
    ) -> str:
        """`(x - zero) * factor + zero`, saturated; one factor, or one for each of the last axis."""
        mantissa, exponent = multiplier(factor)
        shift = 31 - exponent
        made = output.dtype if isinstance(output, Tensor) else output[1]
        if (mantissa < 0).any() or (shift[mantissa != 0] < 2).any() or (shift > 62).any():
            raise UserError(
                "a rescale is negative, or by 2^30 or more, which TOSA does not have", op=self.name
            )
        mode = ROUNDINGS[self.rescaling.rounding]
        return self.op(
            "RESCALE",
            [
                x,
                self.constant(mantissa.reshape(-1), "int32"),
                self.constant(shift.reshape(-1), "int8"),
                self.constant([zeros[0]], kind),
                self.constant([zeros[1]], made),
            ],
            output,
            scale32=True,
            rounding_mode=mode,
            per_channel=factor.size > 1,
            input_unsigned=False,
            output_unsigned=False,
        )

    def wide(self, x: Tensor, bits: int = 0) -> str:
        """`(x - zero point) << bits` as int32."""
        ends = np.iinfo(x.dtype)
        largest = max(ends.max - x.zero, x.zero - ends.min)
        # RESCALE by 2^bits takes values below 2^(29 - bits) alone.
        fits, shape = largest < 1 << (29 - bits), (x.shape, "int32")
        if fits and (x.dtype == "int8" or x.zero == 0):
            zeros = x.zero, 0
            return self.rescale(self.of(x), x.dtype, x.shape, np.array([2.0**bits]), shape, zeros)
        wide, ones = self.rescale(self.of(x), x.dtype, x.shape, WHOLE, shape), [1] * len(x.shape)
        if x.zero:
            wide = self.op("SUB", [wide, self.constant([x.zero], "int32", ones)], shape)
        if bits:
            by = self.constant([bits], "int32", ones)
            wide = self.op("LOGICAL_LEFT_SHIFT", [wide, by], shape)
        return wide

    def end(self, total: str, step: Simple, shape: Sequence[int]) -> None:
        """Bias, rescale, zero point and clamp of an int32 sum."""
        bias, factor, behind = (step.numbers[k] for k in ("bias", "factor", "behind"))
        if behind.any():
            raise UserError("a bias that no accumulator holds has no form in TOSA", op=step.name)
        if bias.any():
            row = [1] * (len(shape) - 1) + [bias.size] if shape else []
            total = self.op("ADD", [total, self.constant(bias, "int32", row)], (shape, "int32"))
        self.codes(total, step, shape, factor)

    def codes(self, total: str, step: Simple, shape: Sequence[int], factor: np.ndarray) -> None:
        """Codes of an int32 sum."""
        out, output = step.out, step.output
        assert out is not None
        ends = np.iinfo(output.dtype)
        clamps = (out.low, out.high) != (ends.min, ends.max)
        last: Tensor | tuple[Sequence[int], str] = (shape, output.dtype) if clamps else output
        if output.dtype == "int8" or out.zero_point == 0:
            name = self.rescale(total, "int32", shape, factor, last, (0, out.zero_point))
        else:  # codes of 16 bits have a zero point of 0
            steps = self.rescale(total, "int32", shape, factor, (shape, "int32"))
            zero = self.constant(np.full([1] * len(shape), out.zero_point), "int32")
            moved = self.op("ADD", [steps, zero], (shape, "int32"))
            name = self.rescale(moved, "int32", shape, WHOLE, last)
        if clamps:
            low, high = (np.array([v], output.dtype).view(np.uint8) for v in (out.low, out.high))
            self.op("CLAMP", [name], output, min_val=low, max_val=high, nan_mode=PROPAGATE)

    # Products

    def _conv2d(self, step: Simple) -> None:
        self._window("CONV2D", step)

    def _depthwise(self, step: Simple) -> None:
        self._window("DEPTHWISE_CONV2D", step)

    def _window(self, kind: str, step: Simple) -> None:
        x, w = step.inputs
        given = step.attributes
        kernel = w.shape[1:3] if kind == "CONV2D" else w.shape[:2]
        axes = list(
            zip(
                x.shape[1:3],
                kernel,
                given["stride"],
                given["dilation"],
                given["padding"],
                strict=True,
            )
        )
        x, padding = self._exact(step, x, axes)
        attributes = {
            "pad": [v for pair in padding for v in pair],
            "stride": given["stride"],
            "dilation": given["dilation"],
            "local_bound": False,
            "acc_type": TYPES["int32"],
        }
        self._products(kind, step, x, w, attributes)

    def _exact(
        self, step: Simple, x: Tensor, axes: list[Any]
    ) -> tuple[Tensor, list[tuple[int, int]]]:
        """The input and its padding without what no window reads: strides have to divide."""
        padding, cut = [], [0, 0]
        for i, (size, k, stride, dilation, (low, high)) in enumerate(axes):
            extra = (size - 1 + low + high - (k - 1) * dilation) % stride
            padding.append((low, max(0, high - extra)))
            cut[i] = max(0, extra - high)
        if any(cut):
            size = [x.shape[0], x.shape[1] - cut[0], x.shape[2] - cut[1], x.shape[3]]
            name = self.op(
                "SLICE", [self.of(x), self.shape([0] * 4), self.shape(size)], (size, x.dtype)
            )
            x = Tensor(name, tuple(size), x.dtype, x.scale, x.zero_point)
        return x, padding

    def _transposed(self, step: Simple) -> None:
        x, w = step.inputs
        attributes = {
            "out_pad": [v for pair in step.attributes["out_padding"] for v in pair],
            "stride": step.attributes["stride"],
            "local_bound": False,
            "acc_type": TYPES["int32"],
        }
        self._products("TRANSPOSE_CONV2D", step, x, w, attributes)

    def _products(
        self, kind: str, step: Simple, x: Tensor, w: Tensor, attributes: dict[str, Any]
    ) -> None:
        """Sums of products with their bias; one for all that rescale it."""
        if (
            x.dtype != "int8"
            or w.dtype != "int8"
            or (w.zero_point is not None and w.zero_point.any())
        ):
            raise UserError(
                f"products of {x.dtype} by {w.dtype} are written of int8 by int8 with weights"
                " whose zero point is 0",
                op=step.name,
            )
        if step.numbers["behind"].any():
            raise UserError("a bias that no accumulator holds has no form in TOSA", op=step.name)
        operands = [
            self.of(x),
            self.of(w),
            self.constant(step.numbers["bias"], "int32"),
            self.constant([x.zero], "int8"),
            self.constant([0], "int8"),
        ]
        key = kind, *operands, str(attributes)
        if key not in self.sums:
            self.sums[key] = self.op(kind, operands, (step.output.shape, "int32"), **attributes)
        self.codes(self.sums[key], step, step.output.shape, step.numbers["factor"])

    def _matmul(self, step: Simple) -> None:
        a, b = step.inputs
        if (a.dtype, b.dtype) != ("int8", "int8"):
            raise UserError(f"products of {a.dtype} by {b.dtype} are not written", op=step.name)
        zeros = [self.constant([t.zero], "int8") for t in (a, b)]
        shape = step.output.shape
        total = self.op("MATMUL", [self.of(a), self.of(b), *zeros], (shape, "int32"))
        self.end(total, step, shape)

    # Element by element

    def _rescale(self, step: Simple) -> None:
        bits = int(step.numbers["bits"].reshape(()))
        self.end(self.wide(step.inputs[0], bits), step, step.output.shape)

    def _add(self, step: Simple) -> None:
        self._sum_of_two("ADD", step)

    def _subtract(self, step: Simple) -> None:
        self._sum_of_two("SUB", step)

    def _sum_of_two(self, kind: str, step: Simple) -> None:
        bits, unit = (float(step.numbers[k].reshape(())) for k in ("bits", "unit"))
        terms = []
        for x in step.inputs:
            shifted = self.wide(x, int(bits))
            assert x.scale is not None
            factor = x.scale.astype(np.float64).reshape(-1) / unit
            terms.append(self.rescale(shifted, "int32", x.shape, factor, (x.shape, "int32")))
        shape = step.output.shape
        self.end(self.op(kind, terms, (shape, "int32")), step, shape)

    def _multiply(self, step: Simple) -> None:
        bits, shape = int(step.numbers["bits"].reshape(())), step.output.shape
        if bits < 0:
            raise UserError("a product of two tensors of 16 bits has no form here", op=step.name)
        zero = self.constant([0], "int8")
        total = self.op("MUL", [*map(self.wide, step.inputs), zero], (shape, "int32"))
        if bits:
            total = self.rescale(total, "int32", shape, np.array([2.0**bits]), (shape, "int32"))
        self.end(total, step, shape)

    def _table(self, step: Simple) -> None:
        (x,), out = step.inputs, step.out
        assert out is not None
        if (x.dtype, step.output.dtype) != ("int8", "int8"):
            raise UserError("a table of 16-bit codes is not written", op=step.name)
        codes = np.clip(np.rint(step.numbers["steps"]) + out.zero_point, out.low, out.high)
        self.op("TABLE", [self.of(x), self.constant(codes, "int8")], step.output)

    def _maximum(self, step: Simple) -> None:
        self.op("MAXIMUM", [*map(self.of, step.inputs)], step.output, nan_mode=PROPAGATE)

    def _minimum(self, step: Simple) -> None:
        self.op("MINIMUM", [*map(self.of, step.inputs)], step.output, nan_mode=PROPAGATE)

    # Sums and extremes

    def _sum_pool(self, step: Simple) -> None:
        """A depthwise convolution by ones: what is padded adds nothing."""
        (x,), given = step.inputs, step.attributes
        channels = x.shape[3]
        ones = np.ones((*given["window"], channels, 1), np.int8)
        w = Tensor(self.fresh(), ones.shape, "int8", data=ones)
        numbers = step.numbers | {"bias": np.broadcast_to(step.numbers["bias"], [channels])}
        geometry = {**given, "dilation": [1, 1]}
        made = Simple("depthwise", step.name, (x, w), step.output, geometry, numbers, step.out)
        self._window("DEPTHWISE_CONV2D", made)

    def _sum(self, step: Simple) -> None:
        (x,) = step.inputs
        total, shape = self.wide(x), list(x.shape)
        for axis in step.attributes["axes"]:
            shape[axis] = 1
            total = self.op("REDUCE_SUM", [total], (list(shape), "int32"), axis=axis)
        self.end(total, step, step.output.shape)

    def _max_pool(self, step: Simple) -> None:
        x, given = step.inputs[0], step.attributes
        ones = [1, 1]
        axes = zip(
            x.shape[1:3], given["window"], given["stride"], ones, given["padding"], strict=True
        )
        x, padding = self._exact(step, x, list(axes))
        self.op(
            "MAX_POOL2D",
            [self.of(x)],
            step.output,
            kernel=given["window"],
            stride=given["stride"],
            pad=[v for pair in padding for v in pair],
            nan_mode=PROPAGATE,
        )

    def _max(self, step: Simple) -> None:
        axis = step.attributes["axis"]
        self.op("REDUCE_MAX", [self.of(step.inputs[0])], step.output, axis=axis, nan_mode=PROPAGATE)

    def _min(self, step: Simple) -> None:
        axis = step.attributes["axis"]
        self.op("REDUCE_MIN", [self.of(step.inputs[0])], step.output, axis=axis, nan_mode=PROPAGATE)

    # Moves

    def _reshape(self, step: Simple) -> None:
        (x,) = step.inputs
        self.op("RESHAPE", [self.of(x), self.shape(step.output.shape)], step.output)

    def _transpose(self, step: Simple) -> None:
        perms = step.attributes["permutation"]
        self.op("TRANSPOSE", [self.of(step.inputs[0])], step.output, perms=perms)

    def _reverse(self, step: Simple) -> None:
        axis = step.attributes["axis"]
        self.op("REVERSE", [self.of(step.inputs[0])], step.output, axis=axis)

    def _concatenate(self, step: Simple) -> None:
        axis = step.attributes["axis"]
        self.op("CONCAT", [*map(self.of, step.inputs)], step.output, axis=axis)

    def _slice(self, step: Simple) -> None:
        bounds = [self.shape(step.attributes[k]) for k in ("start", "size")]
        self.op("SLICE", [self.of(step.inputs[0]), *bounds], step.output)

    def _pad(self, step: Simple) -> None:
        (x,), padding = step.inputs, step.attributes["padding"]
        amounts = self.shape([v for pair in padding for v in pair])
        value = self.constant([step.attributes["value"]], x.dtype)
        self.op("PAD", [self.of(x), amounts, value], step.output)

    def _tile(self, step: Simple) -> None:
        repeats = self.shape(step.attributes["repeats"])
        self.op("TILE", [self.of(step.inputs[0]), repeats], step.output)


def _operator(
    kind: str, attributes: dict[str, Any], inputs: list[str], outputs: list[str]
) -> dict[str, Any]:
    number = OPERATORS.index(kind) + 1
    return {"op": number, "attribute": (kind, attributes), "inputs": inputs, "outputs": outputs}
