"""Rows of floats to a format with blocks, by the format's own arithmetic on vectors.

    for block of rows in workgroups:
      for row in block:
        for step of whole blocks along the row:
          largest of each block, its scale, integers     (`Format.integers_of_data`)
          or the numbers that they stand for             (`Format.fake_quantize`)

About 15 operations an element; the bits are those of the format's definition."""

import math
from dataclasses import replace

from jq.formats import Encoding, get_format, is_affine
from jq.kernels.rowwise.description import Rows
from jq.kernels.tensor import TensorType

# Vectors of a step, at most: the scales of its blocks fill vectors, and are computed together.
CODED, ROUNDED = 32, 16
LARGEST = 64  # elements of a block


class QuantizeBlocks(Rows):
    """f32 [M, K] (, f32 [1], the largest magnitude of all) -> i8 [M, K] and f32 [M, blocks], or
    f32 [M, K].

    Attributes:
        format, size, options: the encoding: blocks of `size` along a row, the last of which may be
            short.
        coded: the results are integers and their scales; else the rounded numbers."""

    format: str
    size: int
    options: tuple[tuple[str, str], ...] = ()
    coded: bool = True

    @staticmethod
    def of(isa: str, enc: Encoding, coded: bool) -> "QuantizeBlocks | None":
        """The kernel of a tensor whose blocks lie along its last axis; None of any other, and of
        affine formats, which need minima. Rows that whole blocks fill are cut anew."""
        fmt, k = get_format(enc.format), enc.shape[-1] if enc.shape else 0
        size = min(enc.block[-1] or k, k) if enc.block else 0
        lead = zip(enc.block[:-1], enc.shape[:-1], strict=True)
        alone = all(b == 1 or n == 1 for b, n in lead) and 0 not in enc.shape
        computed = fmt.at_run_time and not is_affine(enc.format)
        if not (alone and computed and 1 < size <= LARGEST):
            return None
        total = math.prod(enc.shape)
        kernel = QuantizeBlocks(
            isa=isa,
            m=total // k,
            k=k,
            format=enc.format,
            size=size,
            options=enc.options,
            coded=coded,
        )
        if k % size == 0:
            k = max(n for n in range(size, kernel.most + 1, size) if total % n == 0)
        return replace(kernel, m=total // k, k=k)

    @property
    def label(self) -> str:
        return f"{super().label}_{self.format}"

    def piece(self, length: int) -> Encoding:
        """The encoding of `length` numbers of a row, from a multiple of `step` on."""
        return Encoding(self.format, (1, length), (1, self.size), options=self.options)

    @property
    def most(self) -> int:
        """Numbers of a step, at most."""
        vectors = CODED if self.coded else ROUNDED
        return max(1, vectors * self.target.lanes // self.size) * self.size

    @property
    def step(self) -> int:
        return min(self.k, self.most)

    @property
    def whole(self) -> bool:
        """Scales depend on the largest magnitude of the tensor."""
        return "tensor_scale" in get_format(self.format).storage(self.piece(self.size))

    @property
    def operands(self) -> tuple[TensorType, ...]:
        return self.matrix, *[TensorType((1,), "f32")] * self.whole

    @property
    def results(self) -> tuple[TensorType, ...]:
        if not self.coded:
            return (self.matrix,)
        blocks = math.ceil(self.k / self.size)
        return TensorType((self.m, self.k), "i8"), TensorType((self.m, blocks), "f32")
