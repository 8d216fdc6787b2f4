"""Depthwise convolution: every channel by itself, a vector of channels at a time.

    for block of output rows, sample in workgroups:
      for row (or several, where they share groups of input rows):
        for vector of channels:
          start = init + the padding's code * taps that meet rows outside of the image
          for tile of pixels along the row:
            acc[rows][pixels] = start
            for input column that the tile sees:     # outside of the image: the padding's code
              `group` input rows interleaved: one load of each, one shuffle
              acc += interleaved * taps, for every pixel and tap that meet there
            epilogue, store

2 * pixels * channels * taps operations; a load of an input column serves all taps along W."""

import math
from functools import cached_property

import numpy as np

from jq.base.errors import InternalError
from jq.kernels.convolution.windowed import Windowed
from jq.kernels.epilogue.step import check
from jq.kernels.gemm.product import PackedProduct
from jq.kernels.gemm.two_digits import TwoDigits
from jq.kernels.machine.isa import Isa, get_isa
from jq.kernels.tensor import Array, TensorType, cut_last

WORKGROUPS = 16
MIN_OUTPUTS = 1 << 14
MAX_PIXELS = 8
MANY_REGISTERS = 32


class Depthwise(Windowed, PackedProduct):
    """i8 or floats [B, H, W, C] -> [B * Ho * Wo, C], in f32, i8 or i32.

    Operands: codes; weights and init (`pack`; not of floats); i32 [B] zero points and i32 [C'] sums
    of weights, if `row_zero`; of codes with padding, its code i8 [B] (the zero point, in the view
    of the codes); what the epilogue names: by column [C'] (`pad_columns`), by row [B], by element
    [B * Ho * Wo, C].

    Attributes:
        padding: codes read as if they were around the image, low and high, of H and W.
        parts: a tap is a sum of so many int8 (`parts_of`): codes minus zero points have 9 bits."""

    padding: tuple[tuple[int, ...], ...] = ((0, 0), (0, 0))
    parts: int = 1

    @staticmethod
    def parts_of(weight: Array) -> int:
        """Number of int8 numbers that add up to any of the taps: 3 for 255, a code of 127 with a
        zero point of -128, since 127 + 127 falls short of it."""
        return max(1, math.ceil(int(weight.max()) / 127), math.ceil(int(weight.min()) / -128))

    def __post_init__(self) -> None:
        check(self.epilogue, self.sums)
        if min(self.batch, self.channels, self.height, self.width, *self.strides) < 1:
            raise InternalError(f"empty convolution {self.label}")
        if min(*self.output, *(p + 1 for pair in self.padding for p in pair)) < 1:
            raise InternalError(f"no pixels, or negative padding: {self.label}")

    @property
    def target(self) -> Isa:
        """No processor multiplies single numbers of bf16 faster than f32."""
        return get_isa(self.isa).for_element("f32") if self.floats else super().target

    @property
    def takes_bits(self) -> bool:
        return self.halves

    @property
    def label(self) -> str:
        return f"{self.image}_{'x'.join(map(str, self.window))}"

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (*self.window, self.channels)

    @property
    def padded(self) -> bool:
        return any(map(any, self.padding))

    @property
    def around(self) -> tuple[tuple[int, ...], ...]:
        return self.padding

    @property
    def together(self) -> int:
        """Output rows that the same groups of input rows serve: as many as their taps fit, and of
        windows with a width at most 2; of floats, whose groups are rows, 2 where registers hold
        their sums."""
        group, (high, wide) = self.target.dot.group, self.window
        if self.floats and self.target.registers >= MANY_REGISTERS:
            return min(2, self.output[0]) if self.dilations[0] == self.strides[0] == 1 else 1
        if self.dilations[0] > 1 or (wide > 1 and (self.strides[0] > 1 or high >= group)):
            return 1
        most = min(self.output[0], 2 if wide > 1 else group)
        return min(-high % group // self.strides[0] + 1, most)

    @property
    def tap_groups(self) -> int:
        """Groups of input rows."""
        return math.ceil(self.reach / self.target.dot.group)

    @property
    def reach(self) -> int:
        """Input rows that `together` output rows see."""
        return self.window[0] + (self.together - 1) * self.strides[0]

    @property
    def taps(self) -> int:
        """Vectors of taps of a vector of channels, of each part."""
        if self.floats:
            return math.prod(self.window)
        return self.together * self.tap_groups * self.window[1]

    def tap(self, row: int, group: int, column: int) -> int:
        """Number of the vector of taps where an output row meets a group of input rows and a column
        of the window; `taps` where it meets none."""
        if not self.floats:
            return (row * self.tap_groups + group) * self.window[1] + column
        inside = 0 <= group - row < self.window[0]
        return (group - row) * self.window[1] + column if inside else self.taps

    @property
    def tile(self) -> int:
        """Pixels of a register tile."""
        free = self.target.registers - 4 - min(self.together * self.window[1], 8)
        return max(1, min(MAX_PIXELS, free // self.together, self.output[1]))

    @cached_property
    def edges(self) -> tuple[int, int]:
        """Tiles along a row, first and last ones, whose windows may leave the image."""
        left, wide = self.padding[1][0], self.output[1]
        if not any(self.padding[1]):
            return 0, 0
        tiles = math.ceil(wide / self.tile)
        first = min(tiles, math.ceil(left / (self.strides[1] * self.tile)))
        reach = (self.window[1] - 1) * self.dilations[1] - left
        inside = (self.width - 1 - reach) // self.strides[1] + 1  # pixels that end in the image
        return first, tiles - max(first, min(tiles, max(0, inside) // self.tile))

    @property
    def block(self) -> int:
        """Output rows of a workgroup."""
        high, wide = self.output
        blocks = min(
            math.ceil(WORKGROUPS / self.batch),
            max(1, high * wide * self.channels // MIN_OUTPUTS),
            math.ceil(high / self.together),
        )
        per = math.ceil(high / blocks)
        return min(high, math.ceil(per / self.together) * self.together)

    @property
    def columns(self) -> int:
        return max(self.channels, self.target.lanes)

    @property
    def vectors(self) -> int:
        return math.ceil(self.channels / self.target.lanes)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        size = self.target.lanes * self.target.dot.group
        taps = self.parts * self.taps
        init, steps = self.behind()
        return (
            *[TensorType((self.batch, self.height, self.width, self.channels), self.read)]
            * self.code_operands,
            TensorType((self.vectors, taps, size), self.stored),
            *init,
            *([TensorType((self.batch,), "i8")] if self.padded and not self.floats else []),
            *steps,
        )

    def _packed(self, weight: Array) -> Array:
        """f32, int8 or (of several parts) int16 [KH, KW, C] -> [vectors, parts * taps, lanes *
        group]."""
        if self.floats:
            return self._part(weight)
        packed = []
        for _ in range(self.parts):
            part = np.clip(weight, -128, 127)
            packed.append(self._part(part.astype(np.int8)))
            weight = weight - part
        if weight.any():
            raise InternalError(f"{self.label}: a tap is no sum of {self.parts} int8 numbers")
        return np.concatenate(packed, 1)

    def by_lane(self, values: Array) -> Array:
        """[C] as [vectors, 1, lanes * group]: what every tap of a channel has."""
        cut = cut_last(self.pad_columns(values), self.vectors, self.target.lanes)
        lanes = cut.reshape(self.vectors, 1, self.target.lanes)
        return np.repeat(lanes, self.target.dot.group, -1)

    def _part(self, weight: Array) -> Array:
        """Row r of `together` has its taps r strides later."""
        lanes, group = self.target.lanes, self.target.dot.group
        rows, wide = 1 if self.floats else self.together, self.window[1]
        groups = self.window[0] if self.floats else self.tap_groups
        shifted = np.zeros((rows, groups * group, wide, self.columns), weight.dtype)
        for r in range(rows):
            first = r * self.strides[0]
            shifted[r, first : first + self.window[0], :, : self.channels] = weight
        cut = cut_last(shifted, self.vectors, lanes).reshape(
            self.vectors, rows, groups, group, wide, lanes
        )
        ordered = np.ascontiguousarray(cut.transpose(0, 1, 2, 4, 5, 3))
        return ordered.reshape(self.vectors, -1, lanes * group)


class DigitDepthwise(TwoDigits, Depthwise):
    """A `Depthwise` of 16-bit codes; their padding has the code 0."""
