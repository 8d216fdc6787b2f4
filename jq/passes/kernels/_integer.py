"""Contractions of integer programs as kernels see them: their operands, and their rescale."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jq import kernels
from jq.formats import Encoding
from jq.formats.requantize import INT32, Rescaling
from jq.ir import OPS, Op, Program, at, dtype_of, shape_of
from jq.ir.contract import CONTRACT, Contract
from jq.ir.markers import marker_kind
from jq.ir.ops.integer_step import INTEGER, IntegerStep, Operand, match_integer
from jq.ir.requantize import REQUANTIZE
from jq.kernels.epilogue.code_steps import WideRescale
from jq.passes.kernels._kernel import NoKernel


@dataclass(frozen=True)
class IntegerContraction:
    """A `jq.integer` that is a sum of products, a bias and a rescale.

    Attributes:
        contract: the products, as those of a `jq.contract` are given."""

    contract: Contract
    step: IntegerStep

    def rescale(
        self, rescaling: Rescaling, axes: Sequence[int]
    ) -> tuple[tuple[kernels.Step, ...], np.ndarray, list[np.ndarray]]:
        """The steps of an epilogue, the bias i32 [N], and the first step's operands by column, i32
        or f32 [N]; columns are the result's `axes`. The last step's zero point follows.

        Raises:
            NoKernel: the sum is not a plain one of 32 bits, or the rescale not one a column."""
        numbers, out = self.step.numbers, self.step.out
        if "own" in numbers:
            rescaling = replace(rescaling, rounding="single")
        if {"bits", "wide"} & numbers.keys() or np.any(numbers["behind"]):
            raise NoKernel("its sum, or its bias, is larger than 32 bits")
        bias = self._by_column(numbers["bias"], axes).astype(np.int32)
        factor = self._by_column(numbers["factor"], axes)
        small = out.dtype == np.int8
        if rescaling.rounding == "float32":
            codes = kernels.Quantize if small else kernels.WideQuantize
            last: kernels.Step = codes(out.low, out.high, divide=False)
            if small and (np.abs(factor) < 0.5).all():  # no int32 becomes 2^30
                last = kernels.RoundToCodes(out.low, out.high)
            return (kernels.Dequantize(), last), bias, [factor.astype(np.float32)]
        mantissa, left, right = rescaling.split(factor)
        nothing = right > INT32.bits - 1  # what is left of any int32
        mantissa, right = np.where(nothing, 0, mantissa), np.where(nothing, 0, right)
        kind = kernels.Rescale if small else WideRescale
        step = kind(out.low, out.high, rounding=rescaling.rounding, left=bool(left.any()))
        columns = [mantissa, *([left] if step.left else []), right]
        return (step,), bias, [column.astype(np.int32) for column in columns]

    def _by_column(self, array: np.ndarray, axes: Sequence[int]) -> np.ndarray:
        shape = shape_of(self.contract.op.operation.results[0])
        array = np.asarray(array).reshape((1,) * (len(shape) - array.ndim) + array.shape)
        if any(n > 1 for axis, n in enumerate(array.shape) if axis not in axes):
            raise NoKernel("its bias or its rescale is not one a column")
        wide = [n if axis in axes else 1 for axis, n in enumerate(shape)]
        return np.broadcast_to(array, wide).reshape(-1)


def contractions(program: Program) -> list[Op]:
    """The markers of contractions: others may be erased with one that they follow."""
    return [op for op in program.walk() if marker_kind(op) in (CONTRACT, REQUANTIZE, INTEGER)]


def match_contraction(op: Op) -> IntegerContraction | None:
    """The contraction that an op is in an integer program, or None for any other op."""
    step = match_integer(op)
    if step is None or step.kind != "contraction":
        return None
    with at(op):
        sides = tuple(_side(operand) for operand in step.operands)
    shapes = tuple(shape_of(operand.codes) for operand in step.operands)
    kind = step.op.removeprefix("stablehlo.")
    contract = Contract(op, step.name, kind, dict(step.attributes), shapes, sides, ("", ""))
    return IntegerContraction(contract, step)


def _side(operand: Operand) -> tuple[Encoding, dict[str, object]]:
    shape = shape_of(operand.codes)

    def grid(array: np.ndarray, dtype: type) -> np.ndarray:
        return array.astype(dtype).reshape((1,) * (len(shape) - array.ndim) + array.shape)

    scale, zero = grid(operand.scale, np.float32), grid(operand.zero_point, np.int32)
    block = tuple(0 if n == 1 else size // n for n, size in zip(scale.shape, shape, strict=True))
    parts = {"codes": operand.codes, "scale": OPS.constant(scale)}
    encoding = Encoding(np.dtype(dtype_of(operand.codes)).name, shape, block)
    if not zero.any():
        return encoding, parts
    if math.prod(zero.shape) == 1:
        zero = np.broadcast_to(zero, scale.shape)
    return replace(encoding, scheme="asymmetric"), {**parts, "zero_point": OPS.constant(zero)}
