"""What products over windows of an image share: shapes, constants, and the NumPy reference."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jq.errors import InternalError
from jq.kernels.epilogue.steps import Step, applied, check, operand_types
from jq.kernels.gemm.corrections import correction_types
from jq.kernels.kernel import ByColumn
from jq.kernels.tensor import Array, TensorType


@dataclass(frozen=True, kw_only=True)
class Windowed(ByColumn):
    """i8 codes of `batch` images -> [pixels, filters], in f32, i8 or i32.

    Attributes:
        height, width: of the image that is read.
        window, strides, dilations: (H, W).
        row_zero: samples have zero points that are known at run time.
        unsigned: the codes are stored in their unsigned view.
    """

    batch: int
    height: int
    width: int
    channels: int
    window: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    dilations: tuple[int, ...] = (1, 1)
    row_zero: bool = False
    unsigned: bool = False
    epilogue: tuple[Step, ...] = ()

    column_zero: ClassVar[bool] = False
    weight_offset: ClassVar[int] = 0

    @property
    def image(self) -> str:
        """The shape that is read, for people."""
        return f"{self.batch}x{self.height}x{self.width}x{self.channels}"

    @property
    def around(self) -> tuple[tuple[int, ...], ...]:
        """Codes that are read as if they were around the image, low and high, of H and W."""
        return (0, 0), (0, 0)

    @property
    def output(self) -> tuple[int, int]:
        """Ho, Wo."""
        spans = [d * (k - 1) + 1 for d, k in zip(self.dilations, self.window, strict=True)]
        (top, bottom), (left, right) = self.around
        whole = (self.height + top + bottom, self.width + left + right)
        sizes = zip(whole, spans, self.strides, strict=True)
        high, wide = ((size - span) // stride + 1 for size, span, stride in sizes)
        return high, wide

    @property
    def pixels(self) -> int:
        """Of the result."""
        return self.batch * self.output[0] * self.output[1]

    @property
    @abstractmethod
    def weight_shape(self) -> tuple[int, ...]:
        """Of the weight that `pack` takes; filters last."""

    @property
    def operations(self) -> int:
        return 2 * self.pixels * math.prod(self.weight_shape)

    @property
    def code_offset(self) -> int:
        """What the product reads is code + offset."""
        return 128 if self.target.dot.lhs_unsigned else 0

    def behind(self) -> tuple[list[TensorType], list[TensorType]]:
        """The operands behind the weights: `init` and corrections, and those of the epilogue."""
        result = (self.pixels, self.weight_shape[-1])
        steps = operand_types(self.epilogue, result, self.columns, (self.batch,))
        corrections = correction_types(self, (self.batch,), self.columns)
        return [TensorType((self.columns,), "i32"), *corrections], steps

    @property
    def results(self) -> tuple[TensorType, ...]:
        return (TensorType((self.pixels, self.weight_shape[-1]), check(self.epilogue)),)

    def pack(
        self, weight: Array, bias: Array | None = None, zero_point: int = 0
    ) -> dict[str, Array]:
        """The constant operands (`weights`, `init`, and `colsum` with `row_zero`) of an int8 weight
        of `weight_shape`.

        `bias` is i32 [filters], `zero_point` that of the codes (signed) where it is known.
        """
        if weight.shape != self.weight_shape:
            raise InternalError(f"{weight.shape} is not the weight of {self.label}")
        colsum = weight.sum(tuple(range(weight.ndim - 1)), dtype=np.int32)
        init = -np.int32(zero_point + self.code_offset) * colsum
        if bias is not None:
            init = init + bias.astype(np.int32)
        constants = {"weights": self._packed(weight), "init": self.pad_columns(init)}
        return constants | ({"colsum": self.pad_columns(colsum)} if self.row_zero else {})

    @abstractmethod
    def _packed(self, weight: Array) -> Array:
        """The weight as the body reads it."""

    def reference(
        self,
        codes: Array,
        weight: Array,
        bias: Array | None = None,
        zero_point: int | Array = 0,
        operands: Sequence[Sequence[Array]] = (),
    ) -> Array:
        """The same in NumPy, of signed codes [B, H, W, C] and a weight of `weight_shape`."""
        x = codes.astype(np.int64) - np.reshape(zero_point, (-1, 1, 1, 1))
        x = np.pad(x, ((0, 0), *self.around, (0, 0)))
        acc = np.zeros((self.batch, *self.output, self.weight_shape[-1]), np.int64)
        for tap in np.ndindex(*self.window):
            starts = [i * d for i, d in zip(tap, self.dilations, strict=True)]
            rows, columns = (
                slice(start, start + (size - 1) * stride + 1, stride)
                for start, size, stride in zip(starts, self.output, self.strides, strict=True)
            )
            acc += self._products(x[:, rows, columns], weight[tap].astype(np.int64))
        y: Array = (acc + (0 if bias is None else bias)).astype(np.int32)
        return applied(self.epilogue, y.reshape(self.pixels, -1), operands)

    @abstractmethod
    def _products(self, x: Array, weight: Array) -> Array:
        """Of one tap, in NumPy: [B, Ho, Wo, C] -> [B, Ho, Wo, filters]."""
