"""Steps of an epilogue: a typed list of what happens to an accumulator before it is stored.

A step is a pure function of one vector of a row, and names the operands that it reads: by column
(`[N]`), by row (`[M]`), by element (`[M, N]`) or one scalar (`[1]`). The float operations and their
order are part of a step's meaning: the `integer` level computes the same, bit for bit. Nothing is
contracted: a product is rounded before it is added. `emitters` says how each is emitted.

From int32 sums to int8 codes, as `jq.formats.rescale` defines them: Dequantize (the sum times a
multiplier), AddCodes (where there is a residual), RoundToCodes. Steps stay below 2^30 (the pass
that makes them proves it)."""

import math
from typing import ClassVar

import numpy as np

from jq.kernels.epilogue.step import COLUMN, ELEMENT, ROW, SCALAR, Accesses, Step
from jq.kernels.tensor import Array

LOG2_E = math.log2(math.e)


class Dequantize(Step):
    """`f32(acc) * column_scale`; with `per_row`, `f32(acc) * (row_scale * column_scale)`."""

    source: ClassVar[str] = "i32"
    per_row: bool = False

    @property
    def operands(self) -> Accesses:
        return ((COLUMN, "f32"), (ROW, "f32")) if self.per_row else ((COLUMN, "f32"),)


class JoinDigits(Dequantize):
    """`Dequantize` of `256 * high[row, column] + acc`, where `high` are the sums of the upper
    digits of 16-bit codes: the sum of 40 bits and less is rounded once. `small`: it has 32 bits."""

    small: bool = False

    @property
    def operands(self) -> Accesses:
        return (*super().operands, (ELEMENT, "i32"))


class ColumnScale(Step):
    """`y * factor[column]`."""

    takes: ClassVar[Accesses] = ((COLUMN, "f32"),)


class Bias(Step):
    """`y + bias[column]`."""

    takes: ClassVar[Accesses] = ((COLUMN, "f32"),)


class Residual(Step):
    """`y + residual[row, column]`."""

    takes: ClassVar[Accesses] = ((ELEMENT, "f32"),)


class HalfResidual(Step):
    """`y + residual[row, column]`, of a bfloat16 number that is stored by its bits."""

    takes: ClassVar[Accesses] = ((ELEMENT, "i16"),)


class Scale(Step):
    """`y * (scale[row] * scale[column])`: what whole numbers stand for, with two roundings."""

    takes: ClassVar[Accesses] = ((COLUMN, "f32"), (ROW, "f32"))


class ZeroPoint(Step):
    """`y - zero[row] * sum[column]`: what rows' zero points have added to sums of a weight. `zero`
    is a row's zero point times its scale, `sum` that of the numbers of a column."""

    takes: ClassVar[Accesses] = ((COLUMN, "f32"), (ROW, "f32"))


class QuantizedResidual(Step):
    """`y + f32(codes[row, column] - zero_point) * scale`, for a residual that is stored in int8."""

    takes: ClassVar[Accesses] = ((ELEMENT, "i8"), (SCALAR, "f32"), (SCALAR, "i32"))
    unsigned: bool = False


class WideResidual(QuantizedResidual):
    """`QuantizedResidual` of codes of 16 bits."""

    takes: ClassVar[Accesses] = ((ELEMENT, "i16"), (SCALAR, "f32"), (SCALAR, "i32"))


class FakeQuantize(Step):
    """`(saturate(round_half_even(y / scale) + zero_point) - zero_point) * decoded`; NaN is 0: codes
    that a model has between two of its ops, which no memory sees. Operands: the scale that divides
    (as of `Quantize`), the zero point, and the scale of what the codes stand for."""

    takes: ClassVar[Accesses] = ((SCALAR, "f32"), (SCALAR, "i32"), (SCALAR, "f32"))
    low: int = -128
    high: int = 127
    exact: bool = True  # as of `Quantize`


class Clamp(Step):
    """`min(max(y, low), high)`; either bound may be missing: relu is (0, None), relu6 (0, 6)."""

    low: float | None = 0.0
    high: float | None = None


class RoundToHalves(Step):
    """`y` rounded to bf16 (half to even), as its bits: for products that would round it. `ordered`:
    of numbers that are not negative, whose bits are in their order, NaN above all."""

    kind: ClassVar[str] = "halves"
    result: ClassVar[str] = "i16"
    ordered: bool = False


class Gelu(Step):
    """`y * Phi(y)`, or its tanh form; within 6e-5 of the exact function. With
    `codes` (only codes of it are wanted) within 7e-5, and NaN gives 0."""

    long: ClassVar[bool] = True
    approximate: bool = False
    codes: bool = False


class Silu(Step):
    """`y / (1 + exp(-y))`; within 5e-7 (relative) of the exact function."""

    long: ClassVar[bool] = True


def phi(x: Array, approximate: bool) -> Array:
    """The normal distribution's, or its tanh form."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    erf = np.vectorize(math.erf, otypes=[np.float64])
    bell: Array = np.tanh(inner) if approximate else erf(x / math.sqrt(2))
    return (1 + bell) / 2
