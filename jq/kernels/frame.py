"""Results that are images in a frame: the padding that a convolution reads around them.

    code code code code code        rows of pixels lie one behind the other in a product's result;
    code p00  p01  p02  code        in a frame, padding stands between them
    code p10  p11  p12  code
    code code code code code

A workgroup writes from its first pixel to that of the next workgroup, the first one from the start
and the last one to the end: it makes all of that the code, then stores its pixels. Where the last
workgroup begins further ahead, two of them write the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.errors import InternalError
from jq.kernels.builder import Builder, Tile
from jq.kernels.dispatch import Output
from jq.kernels.rows import fill
from jq.kernels.tensor import TensorType
from jq.kernels.values import Index


@dataclass(frozen=True)
class Frame:
    """Images [height, width] of pixels, with so many of `code` around them.

    `padding` is low and high, of height and width; `code` is i8, in the view that is stored.
    """

    height: int
    width: int
    padding: tuple[tuple[int, ...], ...]
    code: int

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 1 or min(map(min, self.padding)) < 0:
            raise InternalError(f"no frame of {self.padding} around {self.height} x {self.width}")

    @property
    def outer(self) -> tuple[int, int]:
        """Height and width with the padding."""
        (top, bottom), (left, right) = self.padding
        return top + self.height + bottom, left + self.width + right

    def rows(self, pixels: int) -> int:
        """Rows of the result for so many pixels."""
        if pixels % (self.height * self.width):
            raise InternalError(f"{pixels} pixels are no images of {self.height} x {self.width}")
        high, wide = self.outer
        return pixels // (self.height * self.width) * high * wide

    def place(self, b: Builder, pixel: Index) -> Index:
        """Which row of the result a pixel is; of the one behind the last: `rows`, and the lead."""
        high, wide = self.outer
        line = b.divided(pixel, self.width)
        image, line = b.divided(line, self.height), b.modulo(line, self.height)
        at = b.offset(b.scaled(line, wide), b.modulo(pixel, self.width))
        return b.offset(b.offset(b.scaled(image, high * wide), at), self._lead)

    @property
    def _lead(self) -> int:
        """What stands in front of an image's first pixel."""
        return self.padding[0][0] * self.outer[1] + self.padding[1][0]

    def reference(self, pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The rows of the result for `pixels` [images * height * width, n], in NumPy."""
        n = pixels.shape[-1]
        images = pixels.reshape(-1, self.height, self.width, n)
        return np.pad(images, ((0, 0), *self.padding, (0, 0)), constant_values=self.code).reshape(
            -1, n
        )

    def part(self, b: Builder, first: Index, count: int, pixels: int) -> Part:
        """What the workgroup with `count` pixels from `first` on writes, of all `pixels`."""
        front = b.scaled(b.above(1, first), self._lead)
        start = b.above(self.place(b, first), front)
        end = b.at_most(self.place(b, b.offset(first, count)), self.rows(pixels))
        return Part(self, start, b.above(end, start))

    def around(self, plain: Output, pixels: int) -> Output:
        """The output of a product [pixels, n] with the frame."""
        count, width = plain.tile

        def offsets(b: Builder, ids: Sequence[Index]) -> list[Index]:
            first, column = plain.offsets(b, ids)
            return [self.part(b, first, count, pixels).start, column]

        def sizes(b: Builder, ids: Sequence[Index]) -> list[Index]:
            first, _ = plain.offsets(b, ids)
            return [self.part(b, first, count, pixels).count, width]

        return Output(plain.whole, (plain.whole.shape[0], width), offsets, sizes)


@dataclass(frozen=True)
class Part:
    """Rows of a framed result that one workgroup writes: `count` from `start` on."""

    frame: Frame
    start: Index
    count: Index

    def row(self, b: Builder, pixel: Index) -> Index:
        """Where a pixel of the workgroup stands in its tile."""
        return b.above(self.frame.place(b, pixel), self.start)

    def fill(self, b: Builder, tile: Tile, kind: TensorType) -> None:
        fill(b, tile, kind, 0, self.count, self.frame.code)
