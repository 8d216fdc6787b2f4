"""Stored tensors as matrices [..., N, K]: the same values in the same format, K last.

Codes and scales are kept; of codes that are packed along another axis the bytes are new. Scales
that several indices of an axis share are repeated where K could not have them otherwise: an axis in
front of the blocked one, or a block that the end of the blocked axis cuts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from jq.base.errors import FormatError
from jq.formats import NUMPY, Deferred, Encoding, Format, get_format
from jq.formats.ggml import GgmlFormat, blocked_axis
from jq.formats.packing import pack, packed_shape, unpack

_STRIP = 128
_SHORTEST = 8  # block that is worth a scale of its own


@dataclass(frozen=True)
class MatrixForm:
    """The way in which a stored tensor of `source` is brought to [lead..., N, K].

    Attributes:
        lead: how many leading axes stay in front, each index with scales of its own.
        free, contracted: the axes that become N and K, in order; blocks lie along the last of K."""

    source: Encoding
    lead: int
    free: tuple[int, ...]
    contracted: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(self.source.grid[a] != self.source.shape[a] for a in range(self.lead)):
            raise FormatError("layers of a stack share scales")
        if any(self._cut(a) for a in (*self.free, *self.contracted[:-1])):
            raise FormatError(f"blocks {self.source.block} do not lie along the contracted axis")
        last = self.contracted[-1]
        block = self.source.block[last]
        if self._cut(last) and self._k_block < min(block, _SHORTEST):
            raise FormatError(f"blocks of {block} would be cut into blocks of {self._k_block}")
        if isinstance(self._format, GgmlFormat) and self._k_block < self._format.block:
            raise FormatError("blocks do not lie along the contracted axis")

    @property
    def _format(self) -> Format:
        return get_format(self.source.format)

    def _shared(self, axis: int) -> bool:
        return self.source.grid[axis] == 1

    def _cut(self, axis: int) -> bool:
        """True if an axis is cut into several blocks of more than one index."""
        return not self._shared(axis) and self.source.block[axis] > 1

    @property
    def order(self) -> tuple[int, ...]:
        return (*range(self.lead), *self.free, *self.contracted)

    @cached_property
    def _k_block(self) -> int:
        """Values of K that share a scale; 0 when all do."""
        shape, last = self.source.shape, self.contracted[-1]
        block = self.source.block[last]
        if all(shape[a] == 1 for a in self.contracted[:-1]):
            return block
        if all(self._shared(a) for a in self.contracted):
            return 0
        return shape[last] if self._shared(last) else math.gcd(block, shape[last])

    @cached_property
    def encoding(self) -> Encoding:
        shape = self.source.shape
        n, k = (math.prod(shape[a] for a in axes) for axes in (self.free, self.contracted))
        own = int(not all(self._shared(a) for a in self.free))
        lead = shape[: self.lead]
        return self.source.with_shape((*lead, n, k), ((1,) * len(lead)) + (own, self._k_block))

    @property
    def is_reshape(self) -> bool:
        """True if every part has its bytes already in the order of the matrix."""
        fmt, source = self._format, self.source
        if isinstance(fmt, GgmlFormat):
            axis = blocked_axis(source)
            return [a for a in self.order if a != axis] == sorted(set(self.order) - {axis})
        if list(self.order) != sorted(self.order) or self._repeats != (1,) * len(source.shape):
            return False
        grids = [source.grid] * ("zero_point" in fmt.storage(source))
        return all(self._joins(shape) for shape in (source.shape, *grids))

    def _joins(self, shape: tuple[int, ...]) -> bool:
        """True if packed rows of the last axis of K follow each other without a gap."""
        last = shape[self.contracted[-1]]
        (one,), (many,) = packed_shape((last,), self._bits), packed_shape((8 * last,), self._bits)
        return many == 8 * one or all(shape[a] == 1 for a in self.contracted[:-1])

    @property
    def _bits(self) -> int:
        return self._format.stored_bits(self.source)

    @property
    def _repeats(self) -> tuple[int, ...]:
        """Number of times that each scale is stored along each axis of the source."""
        source, last = self.source, self.contracted[-1]
        times = [1] * len(source.shape)
        for axes, own in ((self.free, self.encoding.block[-2]), (self.contracted, self._k_block)):
            for a in axes:
                times[a] = source.shape[a] if own and self._shared(a) else 1
        if self._k_block:
            times[last] = 1 if self._shared(last) else source.block[last] // self._k_block
        return tuple(times)

    def pieces(self, name: str, array: np.ndarray) -> Iterator[np.ndarray]:
        """A part of the matrix, of the shape that the format's `storage` says: layer by layer."""
        if self.lead and name in ("codes", "blocks"):
            for layer in array:
                yield from self._layer.pieces(name, layer)
        else:
            yield self._part(name, array)

    @cached_property
    def _layer(self) -> "MatrixForm":
        inner = self.source.with_shape(self.source.shape[1:], self.source.block[1:])
        free, contracted = (tuple(a - 1 for a in x) for x in (self.free, self.contracted))
        return MatrixForm(inner, self.lead - 1, free, contracted)

    def _part(self, name: str, array: np.ndarray) -> np.ndarray:
        new = self.encoding
        if name == "blocks":
            rows = sorted(set(self.order) - {self.contracted[-1]})
            moved = [rows.index(a) for a in self.order[:-1]]
            whole = array.transpose(*moved, len(rows), len(rows) + 1)
            return np.ascontiguousarray(whole).reshape(self._format.storage(new)[name][0])
        if name == "codes":
            fields = np.asarray(unpack(NUMPY, array, self.source.shape, self._bits))
            return self._packed(fields, new.shape, self._bits)
        if name == "tensor_scale":
            return array.reshape((1,) * len(new.shape))
        bits = self._bits if name == "zero_point" else 8
        grid = np.asarray(unpack(NUMPY, array, self.source.grid, bits))
        for axis, times in enumerate(self._repeats):
            grid = np.repeat(grid, times, axis) if times > 1 else grid
        if self._k_block:  # the last block may have been a short one
            last = self.contracted[-1]
            grid = grid.take(range(-(-self.source.shape[last] // self._k_block)), last)
        return self._packed(grid, new.grid, bits)

    def _packed(self, fields: np.ndarray, shape: tuple[int, ...], bits: int) -> np.ndarray:
        return pack(_in_order(fields, self.order).reshape(shape), bits, self._format.filler)

    def parts(self, arrays: Mapping[str, np.ndarray]) -> dict[str, Deferred]:
        """All parts, made when they are needed."""
        return {
            name: Deferred(shape, dtype, partial(self.pieces, name, arrays[name]))
            for name, (shape, dtype) in self._format.storage(self.encoding).items()
        }


def _in_order(array: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """A contiguous transpose. In strips, whose cache lines are used whole: six times faster."""
    moved = array.transpose(order)
    out = np.empty(moved.shape, moved.dtype)
    strips = [slice(None)] * array.ndim
    axis = list(order).index(0)
    for first in range(0, array.shape[0], _STRIP):
        strips[axis] = slice(first, first + _STRIP)
        out[tuple(strips)] = moved[tuple(strips)]
    return out
