"""Common base of products over windows of an image: shapes, constants, and the NumPy reference."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jq.base.errors import InternalError
from jq.kernels.epilogue.steps import operand_types
from jq.kernels.gemm.product import IntegerProduct
from jq.kernels.tensor import Array, TensorType


@dataclass(frozen=True, kw_only=True)
class Windowed(IntegerProduct):
    """i8 codes of `batch` images -> [pixels, filters], in f32, i8 or i32.

    Attributes:
        height, width: of the image that is read.
        window, strides, dilations: (H, W).
    """

    batch: int
    height: int
    width: int
    channels: int
    window: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    dilations: tuple[int, ...] = (1, 1)

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
        """The number of pixels of the result."""
        return self.batch * self.output[0] * self.output[1]

    @property
    @abstractmethod
    def weight_shape(self) -> tuple[int, ...]:
        """The shape of the weight that `pack` takes, filters last."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.pixels, self.weight_shape[-1]

    def behind(self) -> tuple[list[TensorType], list[TensorType]]:
        """The operands after the weights: what sums start from, and those of the epilogue."""
        steps = operand_types(self.epilogue, self.shape, self.columns, (self.batch,))
        return self.start_types(self.batch), steps

    def reference(
        self,
        codes: Array,
        weight: Array,
        bias: Array | None = None,
        zero_point: int | Array = 0,
        operands: Sequence[Sequence[Array]] = (),
        column_zero: Array | int = 0,
    ) -> Array:
        """The same in NumPy, of signed codes [B, H, W, C] and a weight of `weight_shape`."""
        real = weight.astype(np.int64) - column_zero
        x = codes.astype(np.int64) - np.reshape(zero_point, (-1, 1, 1, 1))
        x = np.pad(x, ((0, 0), *self.around, (0, 0)))
        acc = np.zeros((self.batch, *self.output, self.weight_shape[-1]), np.int64)
        for tap in np.ndindex(*self.window):
            starts = [i * d for i, d in zip(tap, self.dilations, strict=True)]
            rows, columns = (
                slice(start, start + (size - 1) * stride + 1, stride)
                for start, size, stride in zip(starts, self.output, self.strides, strict=True)
            )
            acc += self._products(x[:, rows, columns], real[tap])
        return self.finished(acc, bias, operands)

    @abstractmethod
    def _products(self, x: Array, weight: Array) -> Array:
        """The products of one tap, in NumPy: [B, Ho, Wo, C] -> [B, Ho, Wo, filters]."""


@dataclass(frozen=True, kw_only=True)
class PackedWindows(Windowed):
    """One whose weights are packed as the body reads them, from the weight alone."""

    def pack(
        self,
        weight: Array,
        bias: Array | None = None,
        zero_point: int = 0,
        column_zero: Array | None = None,
    ) -> dict[str, Array]:
        """The constant operands (`weights`, `init`, and if needed `colsum`, `column_zero`) of an
        int8 weight of `weight_shape`.

        `bias` and `column_zero` are i32 [filters], `zero_point` that of the codes (signed) where it
        is known.
        """
        if weight.shape != self.weight_shape:
            raise InternalError(f"{weight.shape} is not the weight of {self.label}")
        matrix = weight.reshape(-1, weight.shape[-1])
        starts = self.starts(matrix, bias, zero_point, column_zero)
        return {"weights": self._packed(weight), **starts}

    @abstractmethod
    def _packed(self, weight: Array) -> Array:
        """The weight as the body reads it."""
