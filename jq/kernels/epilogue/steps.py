"""Steps of an epilogue: a typed list of what happens to an accumulator before it is stored.

A step is a pure function of one vector of a row, and names the operands that it reads: by column
(`[N]`), by row (`[M]`), by element (`[M, N]`) or one scalar (`[1]`). The float operations and their
order are part of a step's meaning: the `integer` level computes the same, bit for bit. Nothing is
contracted: a product is rounded before it is added. `emitters` says how each is emitted.

From int32 sums to int8 codes, as `jq.formats.rescale` defines them: Dequantize (the sum times a
multiplier), AddCodes (where there is a residual), RoundToCodes. Steps stay below 2^30 (the pass
that makes them proves it)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from jq.base.errors import InternalError
from jq.base.registry import register
from jq.kernels.tensor import Array, TensorType

LOG2_E = math.log2(math.e)
COLUMN, ROW, ELEMENT, SCALAR = "column", "row", "element", "scalar"
Accesses = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Step(ABC):
    """One step. `operands` pairs an access (`column`, ...) with an element type."""

    kind: ClassVar[str] = ""
    registry: ClassVar[dict[str, type[Step]]] = {}
    result: ClassVar[str] = "f32"  # element type after the step
    source: ClassVar[str] = "f32"  # and before it
    packs: ClassVar[bool] = False  # it can be cut in two: `whole` and `pack`
    long: ClassVar[bool] = False  # it has dozens of operations
    takes: ClassVar[Accesses] = ()  # `operands`, where they are always the same

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.kind:
            return  # what several steps share
        register(Step.registry, "epilogue step", cls.kind, cls)

    @property
    def operands(self) -> Accesses:
        return self.takes

    @abstractmethod
    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        """The step in NumPy; operands broadcast against `y`."""


@dataclass(frozen=True)
class Dequantize(Step):
    """`f32(acc) * column_scale`; with `per_row`, `f32(acc) * (row_scale * column_scale)`."""

    kind: ClassVar[str] = "dequantize"
    source: ClassVar[str] = "i32"
    per_row: bool = False

    @property
    def operands(self) -> Accesses:
        return ((COLUMN, "f32"), (ROW, "f32")) if self.per_row else ((COLUMN, "f32"),)

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        scale = operands[1] * operands[0] if self.per_row else operands[0]
        return y.astype(np.float32) * scale


@dataclass(frozen=True)
class JoinDigits(Dequantize):
    """`Dequantize` of `256 * high[row, column] + acc`, where `high` are the sums of the upper
    digits of 16-bit codes: the sum of 40 bits and less is rounded once. `small`: it has 32 bits."""

    kind: ClassVar[str] = "join_digits"
    small: bool = False

    @property
    def operands(self) -> Accesses:
        return (*super().operands, (ELEMENT, "i32"))

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        *scales, high = operands
        return super().reference(256 * high.astype(np.int64) + y, scales)


@dataclass(frozen=True)
class ColumnScale(Step):
    """`y * factor[column]`."""

    kind: ClassVar[str] = "column_scale"
    takes: ClassVar[Accesses] = ((COLUMN, "f32"),)

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        return y * operands[0]


@dataclass(frozen=True)
class Bias(Step):
    """`y + bias[column]`."""

    kind: ClassVar[str] = "bias"
    takes: ClassVar[Accesses] = ((COLUMN, "f32"),)

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        return y + operands[0]


@dataclass(frozen=True)
class Residual(Step):
    """`y + residual[row, column]`."""

    kind: ClassVar[str] = "residual"
    takes: ClassVar[Accesses] = ((ELEMENT, "f32"),)
    reference = Bias.reference


@dataclass(frozen=True)
class Scale(Step):
    """`y * (scale[row] * scale[column])`: what whole numbers stand for, with two roundings."""

    kind: ClassVar[str] = "scale"
    takes: ClassVar[Accesses] = ((COLUMN, "f32"), (ROW, "f32"))

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        return y * (operands[1] * operands[0])


@dataclass(frozen=True)
class ZeroPoint(Step):
    """`y - zero[row] * sum[column]`: what rows' zero points have added to sums of a weight. `zero`
    is a row's zero point times its scale, `sum` that of the numbers of a column."""

    kind: ClassVar[str] = "zero_point"
    takes: ClassVar[Accesses] = ((COLUMN, "f32"), (ROW, "f32"))

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        return y - operands[1] * operands[0]


@dataclass(frozen=True)
class QuantizedResidual(Step):
    """`y + f32(codes[row, column] - zero_point) * scale`, for a residual that is stored in int8."""

    kind: ClassVar[str] = "quantized_residual"
    takes: ClassVar[Accesses] = ((ELEMENT, "i8"), (SCALAR, "f32"), (SCALAR, "i32"))
    unsigned: bool = False

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        codes = _signed(operands[0], self.unsigned) - operands[2]
        return y + codes.astype(np.float32) * operands[1]


@dataclass(frozen=True)
class WideResidual(QuantizedResidual):
    """`QuantizedResidual` of codes of 16 bits."""

    kind: ClassVar[str] = "wide_residual"
    takes: ClassVar[Accesses] = ((ELEMENT, "i16"), (SCALAR, "f32"), (SCALAR, "i32"))


@dataclass(frozen=True)
class FakeQuantize(Step):
    """`(saturate(round_half_even(y / scale) + zero_point) - zero_point) * decoded`; NaN is 0: codes
    that a model has between two of its ops, which no memory sees. Operands: the scale that divides
    (as of `Quantize`), the zero point, and the scale of what the codes stand for."""

    kind: ClassVar[str] = "fake_quantize"
    takes: ClassVar[Accesses] = ((SCALAR, "f32"), (SCALAR, "i32"), (SCALAR, "f32"))
    low: int = -128
    high: int = 127
    exact: bool = True  # as of `Quantize`

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        scale, zero, decoded = operands
        value = y / scale
        rounded = np.rint(np.where(np.isnan(value), np.float32(0), value))
        codes = np.clip(rounded, (self.low - zero), (self.high - zero))
        return codes.astype(np.float32) * decoded


@dataclass(frozen=True)
class Clamp(Step):
    """`min(max(y, low), high)`; either bound may be missing: relu is (0, None), relu6 (0, 6)."""

    kind: ClassVar[str] = "clamp"
    low: float | None = 0.0
    high: float | None = None

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        low = -np.inf if self.low is None else self.low
        high = np.inf if self.high is None else self.high
        clipped: Array = np.clip(y, np.float32(low), np.float32(high))
        return clipped


@dataclass(frozen=True)
class Gelu(Step):
    """`y * Phi(y)`, or its tanh form; within `functions.GELU_BOUND` of the exact function. With
    `codes` (only codes of it are wanted) within `GELU_CODES_BOUND`, and NaN gives 0."""

    kind: ClassVar[str] = "gelu"
    long: ClassVar[bool] = True
    approximate: bool = False
    codes: bool = False

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        wide = np.asarray(y, np.float64)
        result: Array = (wide * phi(wide, self.approximate)).astype(np.float32)
        return np.where(np.isnan(result), np.float32(0), result) if self.codes else result


@dataclass(frozen=True)
class Silu(Step):
    """`y / (1 + exp(-y))`; within `functions.SILU_BOUND` (relative) of the exact function."""

    kind: ClassVar[str] = "silu"
    long: ClassVar[bool] = True

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        wide = np.asarray(y, np.float64)
        result: Array = (wide * np.exp(-np.logaddexp(0, -wide))).astype(np.float32)
        return result


@dataclass(frozen=True)
class ToCodes(Step):
    """A step that ends in codes in [low, high]; `unsigned` stores `code + 128`."""

    result: ClassVar[str] = "i8"
    bits: ClassVar[int] = 8
    packs: ClassVar[bool] = True
    low: int = -128
    high: int = 127
    unsigned: bool = False

    def __post_init__(self) -> None:
        end = 1 << (self.bits - 1)
        if not -end <= self.low <= self.high < end:
            raise InternalError(f"codes {self.low}..{self.high} do not fit int{self.bits}")
        if self.unsigned and self.bits > 8:
            raise InternalError(f"codes of {self.bits} bits have no unsigned view")

    @property
    def shift(self) -> int:
        """Offset of a stored code: what is stored is code + shift."""
        return 128 if self.unsigned else 0

    def stored(self, rounded: Array) -> Array:
        """Whole numbers as the codes in memory."""
        codes = np.clip(rounded, self.low, self.high).astype(f"int{self.bits}")
        return codes ^ np.int8(-128) if self.unsigned else codes


@dataclass(frozen=True)
class Quantize(ToCodes):
    """`saturate(round_half_even(v) + zero_point)` with v = `y / scale`, or `y` itself; NaN is 0.
    The scale (in [2^-70, 2^100]) and the zero point are operands, so that layers share a kernel.
    `divide=False`: the step before multiplied by `scale_in * scale_weight / scale_out` already. A
    relu is a bound of the code at the zero point. With `per_column` both are by column: products
    that are one have results of their own. Without `exact` the quotient may be off by 2^-23 of its
    size, and y is a number: for what has an error of its own (`Gelu` with `codes`)."""

    kind: ClassVar[str] = "quantize"
    divide: bool = True
    per_column: bool = False
    exact: bool = True

    @property
    def operands(self) -> Accesses:
        how = COLUMN if self.per_column else SCALAR
        zero_point = (how, "i32")
        return ((how, "f32"), zero_point) if self.divide else (zero_point,)

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        value = y / operands[0] if self.divide else y
        return self.stored(np.rint(np.where(np.isnan(value), np.float32(0), value)) + operands[-1])


@dataclass(frozen=True)
class WideQuantize(Quantize):
    """`Quantize` to codes of 16 bits."""

    kind: ClassVar[str] = "wide_quantize"
    result: ClassVar[str] = "i16"
    bits: ClassVar[int] = 16
    packs: ClassVar[bool] = False
    low: int = -(2**15)
    high: int = 2**15 - 1


@dataclass(frozen=True)
class AddCodes(Step):
    """`(round_half_even(y) [clamped] [* gain] + f32(codes - zero_point) * factor) * unit`.
    Operands: codes by element, factor (a whole number), unit, the zero point, two bounds if
    `bounded`, and the gain (a whole number) if `gained`."""

    kind: ClassVar[str] = "add_codes"
    unsigned: bool = False
    bounded: bool = False
    gained: bool = False

    @property
    def operands(self) -> Accesses:
        more = ((SCALAR, "f32"),) * (2 * self.bounded + self.gained)
        return ((ELEMENT, "i8"), (SCALAR, "f32"), (SCALAR, "f32"), (SCALAR, "i32"), *more)

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        stored, factor, unit, zero, *more = operands
        codes = _signed(stored, self.unsigned) - zero
        y = np.rint(y)
        if self.bounded:
            y = np.clip(y, *more[:2])
        if self.gained:
            y = y * more[-1]
        result: Array = (y + codes.astype(np.float32) * factor) * unit
        return result


@dataclass(frozen=True)
class RoundToCodes(ToCodes):
    """`saturate(round_half_even(y) + zero_point)`, |y| < 2^30; the zero point is an operand."""

    kind: ClassVar[str] = "codes"
    takes: ClassVar[Accesses] = ((SCALAR, "i32"),)

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        return self.stored(np.rint(y) + operands[0])


def _signed(stored: Array, unsigned: bool) -> Array:
    """The codes that are stored in either view."""
    codes = stored.astype(np.int32)
    return (codes & 255) - 128 if unsigned else codes


def phi(x: Array, approximate: bool) -> Array:
    """The normal distribution's, or its tanh form."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    erf = np.vectorize(math.erf, otypes=[np.float64])
    bell: Array = np.tanh(inner) if approximate else erf(x / math.sqrt(2))
    return (1 + bell) / 2


def applied(epilogue: Sequence[Step], y: Array, operands: Sequence[Sequence[Array]]) -> Array:
    """All steps in NumPy; `operands` holds each one's arrays in broadcastable form."""
    for step, arrays in zip(epilogue, operands, strict=True):
        y = step.reference(y, arrays)
    return y


def check(steps: Sequence[Step], element: str = "i32") -> str:
    """The element type after `steps`; raises `InternalError` when one cannot follow another."""
    for step in steps:
        if step.source != element:
            raise InternalError(f"epilogue step {step.kind!r} takes {step.source}, gets {element}")
        element = step.result
    return element


def operand_types(
    steps: Sequence[Step], result: tuple[int, ...], padded: int, rows: tuple[int, ...] | None = None
) -> list[TensorType]:
    """The type of every operand of `steps`, for a result of shape `[*rows, n]`."""
    rows = result[:-1] if rows is None else rows
    shapes = {COLUMN: (padded,), ROW: rows, ELEMENT: result, SCALAR: (1,)}
    return [TensorType(shapes[how], what) for step in steps for how, what in step.operands]
