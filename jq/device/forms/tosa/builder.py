"""Operators, constants and rescales of a TOSA file, as they are put together."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.device.forms.canonical.base import Simple
from jq.device.network import Tensor
from jq.formats.integer_functions import FRACTION
from jq.formats.requantize import Rescaling, multiplier
from jq.frontends.tosa.schema import OPERATORS, PROPAGATE, ROUNDINGS, TYPES

WHOLE = np.array([1.0])  # a rescale by one: a conversion
Made = Tensor | tuple[Sequence[int], str]  # a tensor of the network; shape and type of another


class Builder:
    """Collects operators, tensors and shapes; names everything that a network does not."""

    def __init__(self, rescaling: Rescaling, shared_sums: bool = True) -> None:
        self.rescaling, self.shared_sums = rescaling, shared_sums
        self.operators: list[dict[str, Any]] = []
        self.tensors: list[dict[str, Any]] = []
        self.shapes: list[dict[str, Any]] = []
        self.constants: dict[Any, str] = {}
        self.sums: dict[Any, str] = {}  # of products that several rescales read
        self.made: dict[str, tuple[Sequence[int], str]] = {}  # shape and type by name
        self.name = ""  # of the layer that is written, for messages and names

    # What every operator needs

    def tensor(self, name: str, shape: Sequence[int], dtype: str, data: bytes | None = None) -> str:
        if dtype not in TYPES:
            raise UserError(f"{name}: {dtype} has no form in TOSA", op=self.name)
        if len(shape) > 6:
            raise UserError(f"{len(shape)} axes have no form in TOSA", op=self.name)
        found = {"name": name, "shape": list(shape), "type": TYPES[dtype]}
        if data is not None:
            found["data"] = np.frombuffer(data, np.uint8)
        self.tensors.append(found)
        self.made[name] = shape, dtype
        return name

    def fresh(self) -> str:
        return f"{self.name}/t{len(self.tensors) + len(self.shapes)}"

    def constant(self, values: Any, dtype: str, shape: Sequence[int] | None = None) -> str:
        """A constant tensor; equal ones are one."""
        array = np.asarray(values).astype(dtype)
        array = array.reshape(array.shape if shape is None else shape)
        key = dtype, array.shape, array.tobytes()
        if key not in self.constants:
            self.constants[key] = self.stored(self.fresh(), array)
        return self.constants[key]

    def stored(self, name: str, array: np.ndarray) -> str:
        self.tensor(name, array.shape, array.dtype.name, array.tobytes())
        self.operators.append(_operator("CONST", {}, [], [name]))
        return name

    def shape(self, values: Sequence[int]) -> str:
        key = "shape", tuple(values)
        if key not in self.constants:
            name, data = self.fresh(), np.array(values, "<i8").tobytes()
            row = {"name": name, "rank": len(values), "data": np.frombuffer(data, np.uint8)}
            self.shapes.append(row)
            self.operators.append(_operator("CONST_SHAPE", {}, [], [name]))
            self.constants[key] = name
        return self.constants[key]

    def op(self, kind: str, inputs: Sequence[str], output: Made, **attributes: Any) -> str:
        """An operator whose result is a tensor of the network, or one that is named here."""
        if isinstance(output, Tensor):
            name = self.tensor(output.name, output.shape, output.dtype)
        else:
            name = self.tensor(self.fresh(), *output)
        self.operators.append(_operator(kind, attributes, list(inputs), [name]))
        return name

    def of(self, tensor: Tensor) -> str:
        """The name of an operand, which may be a constant."""
        if tensor.data is not None and tensor.name not in self.made:
            return self.constant(tensor.data, tensor.dtype)
        return tensor.name

    # Rescales

    def rescale(
        self, x: str, factor: np.ndarray, output: Made, zeros: tuple[int, int] = (0, 0)
    ) -> str:
        """`(x - zero) * factor + zero`, saturated; one factor, or one for each of the last axis."""
        kind = self.made[x][1]
        mantissa, exponent = multiplier(factor)
        if (mantissa < 0).any():  # TOSA has none: the operand changes its sign
            x, mantissa = self._negated(x, mantissa), np.abs(mantissa)
        shift = 31 - exponent
        nothing = (shift > 62) | (mantissa == 0)  # a half of int32 and less
        mantissa, shift = np.where(nothing, 0, mantissa), np.where(nothing, 62, shift)
        made = output.dtype if isinstance(output, Tensor) else output[1]
        if (shift[mantissa != 0] < 2).any():
            raise UserError("a rescale by 2^30 or more has no form in TOSA", op=self.name)
        mode = ROUNDINGS[self.rescaling.rounding]
        numbers = (mantissa.reshape(-1), "int32"), (shift.reshape(-1), "int8")
        operands = (*numbers, ([zeros[0]], kind), ([zeros[1]], made))
        signed = {"input_unsigned": False, "output_unsigned": False}
        options = {"scale32": True, "rounding_mode": mode, "per_channel": factor.size > 1, **signed}
        return self.op("RESCALE", [x, *(self.constant(*n) for n in operands)], output, **options)

    def _negated(self, x: str, mantissa: np.ndarray) -> str:
        """int32 `x`, negated where a mantissa is."""
        signs, (shape, _) = np.where(mantissa < 0, -1, 1).reshape(-1), self.made[x]
        sign = self.constant(signs, "int32", self.along(signs, shape))
        return self.op("MUL", [x, sign, self.constant([0], "int8")], (shape, "int32"))

    def wide(self, x: Tensor, bits: int = 0) -> str:
        """`(x - zero point) << bits` as int32."""
        # RESCALE by 2^bits takes values below 2^(29 - bits) alone.
        fits, shape = x.largest < 1 << (29 - bits), (x.shape, "int32")
        if fits and (x.dtype == "int8" or x.zero == 0):
            return self.rescale(self.of(x), np.array([2.0**bits]), shape, (x.zero, 0))
        wide, ones = self.rescale(self.of(x), WHOLE, shape), [1] * len(x.shape)
        if x.zero:
            wide = self.op("SUB", [wide, self.constant([x.zero], "int32", ones)], shape)
        if bits:
            by = self.constant([bits], "int32", ones)
            wide = self.op("LOGICAL_LEFT_SHIFT", [wide, by], shape)
        return wide

    def end(self, total: str, step: Simple) -> None:
        """Bias, rescale, zero point and clamp of an int32 sum."""
        bias, shape = step.numbers["bias"], step.output.shape
        if bias.any():
            row = self.along(bias, shape)
            total = self.op("ADD", [total, self.constant(bias, "int32", row)], (shape, "int32"))
        self.codes(total, step, step.numbers["factor"])

    def along(self, numbers: np.ndarray, shape: Sequence[int]) -> list[int]:
        """The shape of numbers that stand along the last axis of a tensor, or are one."""
        if numbers.size not in (1, shape[-1] if shape else 1):
            what = "parameters along another axis than the last have no form in TOSA"
            raise UserError(what, op=self.name, hint="write it with channels last")
        return [1] * (len(shape) - 1) + [numbers.size] if shape else []

    def codes(self, total: str, step: Simple, factor: np.ndarray) -> None:
        """Codes of an int32 sum, and of a bias behind the rescale."""
        out, output, behind = step.out, step.output, step.numbers.get("behind")
        shape, made = output.shape, (output.shape, "int32")
        self.along(factor, shape)
        if behind is not None and (behind.any() or step.kind == "normalization"):
            total = self.rescale(total, factor * (1 << FRACTION), made)
            added = np.rint(behind * (1 << FRACTION))
            row = self.along(added, shape)
            total = self.op("ADD", [total, self.constant(added, "int32", row)], made)
            factor = np.array([2.0**-FRACTION])
        ends = np.iinfo(output.dtype)
        clamps = (out.low, out.high) != (ends.min, ends.max)
        last: Made = (shape, output.dtype) if clamps else output
        if output.dtype == "int8" or out.zero_point == 0:
            name = self.rescale(total, factor, last, (0, out.zero_point))
        else:  # codes of 16 bits have a zero point of 0
            steps = self.rescale(total, factor, made)
            zero = self.constant(np.full([1] * len(shape), out.zero_point), "int32")
            name = self.rescale(self.op("ADD", [steps, zero], made), WHOLE, last)
        if clamps:
            low, high = (np.array([v], output.dtype).view(np.uint8) for v in (out.low, out.high))
            self.op("CLAMP", [name], output, min_val=low, max_val=high, nan_mode=PROPAGATE)


def _operator(
    kind: str, attributes: dict[str, Any], inputs: list[str], outputs: list[str]
) -> dict[str, Any]:
    number = OPERATORS.index(kind) + 1
    return {"op": number, "attribute": (kind, attributes), "inputs": inputs, "outputs": outputs}
