"""Results that are images in a frame: the emission of `Frame`'s places.

A workgroup writes from its first pixel to that of the next workgroup, the first one from the start
and the last one to the end: it makes all of that the code, then stores its pixels. Where the last
workgroup begins further ahead, two of them write the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from jq.kernels.emit.builder import Builder, Tile
from jq.kernels.emit.dispatch import Output
from jq.kernels.emit.values import Index, Indices
from jq.kernels.schedule.frame import Frame
from jq.kernels.schedule.rows import fill
from jq.kernels.tensor import TensorType


def place(b: Builder, frame: Frame, pixel: Index) -> Index:
    """Row of the result for a pixel; for the one after the last: `rows`, and the lead."""
    high, wide = frame.outer
    line = b.divided(pixel, frame.width)
    image, line = b.divided(line, frame.height), b.modulo(line, frame.height)
    at = b.offset(b.scaled(line, wide), b.modulo(pixel, frame.width))
    return b.offset(b.offset(b.scaled(image, high * wide), at), frame.lead)


@dataclass(frozen=True)
class Part:
    """Rows of a framed result that one workgroup writes: `count` from `start` on."""

    frame: Frame
    start: Index
    count: Index

    @staticmethod
    def of(b: Builder, frame: Frame, first: Index, count: int, pixels: int) -> Part:
        """The part that the workgroup with `count` pixels from `first` on writes, of all."""
        front = b.scaled(b.above(1, first), frame.lead)
        start = b.above(place(b, frame, first), front)
        end = b.at_most(place(b, frame, b.offset(first, count)), frame.rows(pixels))
        return Part(frame, start, b.above(end, start))

    def row(self, b: Builder, pixel: Index) -> Index:
        """Row of a pixel in the workgroup's tile."""
        return b.above(place(b, self.frame, pixel), self.start)

    def fill(self, b: Builder, tile: Tile, kind: TensorType) -> None:
        fill(b, tile, kind, 0, self.count, self.frame.code)


def framed(frame: Frame | None, plain: Output, pixels: int) -> Output:
    """The output of a product [pixels, n], with the frame if there is one."""
    if frame is None:
        return plain
    count, width = plain.tile

    def offsets(b: Builder, ids: Indices) -> list[Index]:
        first, column = plain.offsets(b, ids)
        return [Part.of(b, frame, first, count, pixels).start, column]

    def sizes(b: Builder, ids: Indices) -> list[Index]:
        first, _ = plain.offsets(b, ids)
        return [Part.of(b, frame, first, count, pixels).count, width]

    return Output(plain.whole, (plain.whole.shape[0], width), offsets, sizes)
