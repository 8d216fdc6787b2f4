"""Operators, tensors and scales of a TFLite file, as they are put together."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.device.forms.canonical.base import Simple
from jq.device.forms.table import method_of, no_form
from jq.device.network import Tensor
from jq.formats.requantize import Rescaling
from jq.frontends.tflite.schema import OPERATORS, RELU, SCHEMA, TYPES

_HERE = "TFLite with the same bits"
# What takes conditions and indices as well, by the types of what it reads and gives.
_ALIKE = ("reshape", "transpose", "slice", "concatenate", "tile", "reverse")
CODES, F64 = {"int8", "int16"}, np.float64
_TYPES = {
    **dict.fromkeys(_ALIKE, ({"bool"}, {"int32"})),
    **dict.fromkeys(("greater", "greater_equal", "equal"), ({"bool", "int8", "int16", "int32"},)),
    **dict.fromkeys(("logical_and", "logical_or", "logical_not"), ({"bool"},)),
    "select": ({"bool", "int8"}, {"bool", "int16"}, {"bool", "int32"}),
    "convert": ({"bool", "int8", "uint8", "int16", "int32"},),
    "softmax": ({"bool", *CODES},),
    "gather_rows": ({*CODES, "int32"}, {"bool", "int32"}),
    **{f"integer_{kind}": ({"int32"},) for kind in ("add", "subtract", "multiply", "divide")},
    **dict.fromkeys(("maximum", "minimum", "max", "min", "pad"), ({"int32"},)),
}


class Builder:
    """Collects operators, tensors and buffers; tensors are known by their names."""

    wide_sums = True

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
        write = method_of(self, step, _HERE)
        types = {t.dtype for t in (*step.inputs, step.output)}
        held = CODES, {"float32"}, *_TYPES.get(step.kind, ())
        known = any(types <= some for some in held)
        if not known and step.kind not in ("quantize", "dequantize"):
            raise self.lacking(f"{step.kind.replace('_', ' ')} of {', '.join(sorted(types))}")
        if "scales" in step.numbers:
            what = f"{step.kind} of two tensors as ONNX Runtime rounds it has no TFLite form"
            raise UserError(what, op=step.name, hint="give the target litert")
        write(step)

    def lacking(self, what: str) -> UserError:
        """The message that TFLite has no such thing."""
        return no_form(what, _HERE, self.name)

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
        found: dict[str, Any] = {"shape": list(tensor.shape), "type": TYPES[tensor.dtype]}
        found |= {"buffer": buffer, "name": tensor.name}
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
        plain = kind in ("CAST", "RESHAPE", "TILE")  # whatever codes stand for
        places = [self.place(t if plain else self.read(t)) for t in inputs]
        name = OPERATORS[kind][2]
        row = {"opcode_index": self.codes.index(kind), "inputs": places}
        row |= {"outputs": [self.place(output)]}
        row |= {"builtin_options": (name, options)} if name != "-" else {}
        self.operators.append(row)
        return output

    def read(self, x: Tensor) -> Tensor:
        """A tensor with the scale that its reader gives it: the same codes again, where it was made
        with another one."""
        self.place(x)
        first = self.known[x.name]
        own, wanted = ((t.zero, None if t.scale is None else t.scale.tolist()) for t in (first, x))
        if x.scale is None or own == wanted:
            return x
        made = replace(x, name=f"{x.name} by {x.scale.reshape(-1)[0]:.9g} of {x.zero}", data=None)
        computed = any(self.place(made) in row["outputs"] for row in self.operators)
        # No RESHAPE, whose result LiteRT's ADD writes over while `x` is read; XNNPACK has no TILE.
        once = self.constant([1] * len(x.shape))
        return made if computed else self.op("TILE", [x, once], made)

    # Rescales

    def weight_scale(self, step: Simple, x: Tensor, given: np.ndarray | None) -> np.ndarray:
        """The float32 scale from which kernels derive the step's mantissas: the weight's own,
        `given`, or the nearest to what the factor asks for."""
        assert x.scale is not None
        factor = self.factor(step, 0)
        source, result = (np.float32(v) for v in (x.scale.reshape(-1)[0], step.out.scale))
        wanted = factor * np.float64(result) / np.float64(source)
        nearest = wanted.astype(np.float32)
        choices = [nearest, *(np.nextafter(nearest, np.float32(end)) for end in (0, np.inf))]
        if given is not None:
            choices.insert(0, np.broadcast_to(given.reshape(-1), factor.shape))
        best = nearest.copy()
        right = np.zeros(factor.shape, bool)
        wide = "wide" in step.numbers and "own" not in step.numbers  # which is of float64
        for choice in choices:
            same = self.same(self.derived(source, choice, result), factor, wide)
            best = np.where(same & ~right, choice, best)
            right |= same
        if not right.all():
            raise self.lacking(f"a factor of {wanted[~right][0]:.9g} that is no float32 scale")
        return best

    def factor(self, step: Simple, least: float) -> np.ndarray:
        """The factors of a step, within the limits of XNNPACK's operators."""
        factor = step.numbers["factor"].reshape(-1)
        if self.rescaling.rounding == "float32" and not (
            least <= factor.min() <= factor.max() < 256
        ):
            raise self.lacking(f"a factor of {factor.max():.9g} by XNNPACK")
        return factor

    def derived(self, a: Any, b: Any, to: Any, product: Any = F64, quotient: Any = F64) -> Any:
        """The factor of two scales `to` that of the result, all float32, as kernels compute it in
        the types of their product and quotient."""
        if self.rescaling.rounding == "float32":
            product = quotient = np.float32
        return np.asarray(quotient(product(a) * product(b)) / quotient(to))

    def same(self, factor: np.ndarray, other: np.ndarray, wide: bool = False) -> np.ndarray:
        """True where two factors have the same mantissas and shifts."""
        parts = (self.rescaling.split(np.asarray(f), wide=wide) for f in (factor, other))
        return np.all([a == b for a, b in zip(*parts, strict=True)], 0)

    def scales(self, step: Simple, quotient: Any, *xs: Tensor) -> None:
        """Refuses a factor that is not the product of the scales, in float32, by the result's."""
        grids = [x.scale for x in xs if x.scale is not None]
        if [g.size for g in grids] != [1, 1]:
            raise self.lacking("a product with several scales")
        a, b = (np.float32(g.reshape(())) for g in grids)
        self.equal(step, self.derived(a, b, np.float32(step.out.scale), np.float32, quotient))

    def equal(self, step: Simple, factor: Any) -> None:
        """Refuses a step with another mantissa or exponent than a factor has."""
        if not self.same(factor, step.numbers["factor"], "wide" in step.numbers).all():
            raise self.lacking("a factor that its scales do not give")

    def given(self, step: Simple) -> Tensor:
        """The result of a step that makes codes, with what they stand for."""
        scale, zero = np.array([step.out.scale], np.float32), np.array([step.out.zero_point])
        return replace(step.output, scale=scale, zero_point=zero)

    def finish(self, step: Simple, kind: str, inputs: Sequence[Tensor], **options: Any) -> None:
        """An operator that rescales, with its fused activation, and the limits of its codes."""
        out, output, ends = step.out, self.given(step), np.iinfo(step.output.dtype)
        if (step.numbers["behind"] != 0).any():
            raise self.lacking("a bias that no accumulator holds")
        weights = {"int8"} if "wide" in step.numbers else set[str]()
        if {x.dtype for x in step.inputs} - weights != {output.dtype} and kind != "QUANTIZE":
            raise self.lacking(f"codes of {output.dtype} made of others")
        bounds = [("MAXIMUM", out.low, ends.min), ("MINIMUM", out.high, ends.max)]
        bounds = [] if kind.startswith("RELU") else bounds  # it has its own
        limits, activation = [(k, code) for k, code, end in bounds if code != end], {}
        options_of = SCHEMA.tables.get(OPERATORS[kind][2], {})
        if limits == [("MAXIMUM", out.zero_point)] and "activation" in options_of:
            limits, activation = [], {"activation": RELU}
        made = self.fresh(output, output.shape) if limits else output
        self.op(kind, inputs, made, **options, **activation)
        for i, (limit, code) in enumerate(limits):
            bound = self.coded(np.full([1] * len(output.shape), code), output)
            last = output if i == len(limits) - 1 else self.fresh(output, output.shape)
            made = self.op(limit, [made, bound], last)

    def coded(self, codes: Any, like: Tensor) -> Tensor:
        """A constant of another tensor's codes."""
        return replace(self.constant(codes, like.dtype, like.scale), zero_point=like.zero_point)

    # Moves that several kinds need

    def reshaped(self, x: Tensor, output: Tensor) -> Tensor:
        """The same codes in the shape of `output`."""
        shape = self.constant(output.shape)
        return self.op("RESHAPE", [x, shape], output, new_shape=list(output.shape))

    def slice(self, x: Tensor, start: Sequence[int], output: Tensor) -> None:
        """A part of a tensor."""
        self.op("SLICE", [x, self.constant(start), self.constant(output.shape)], output)

    def shared(self, step: Simple) -> list[Tensor]:
        """Operands that share the codes of the result; a constant takes them."""
        made = step.output
        return [
            replace(t, scale=made.scale, zero_point=made.zero_point) if t.data is not None else t
            for t in step.inputs
        ]
