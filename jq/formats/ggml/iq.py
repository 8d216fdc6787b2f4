"""ggml's IQ types of a grid: groups of 8 or 4 values are points of a set (`grids`), with signs.

    value = f16 scale * (2 * factor + 1) * unit * code

A point is an index into the set. Codes are its magnitudes with signs (IQ2, IQ3), or eight times its
numbers -1, 0, 1 with a shift of one up or down (IQ1). All products are exact in float32."""

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np

from jq.formats.arrays import Array, ArrayOps
from jq.formats.ggml import GgmlFormat, Triple, reciprocal
from jq.formats.ggml.bits import Numbers, fields, grid, half_bytes, round_to_half, words
from jq.formats.ggml.k import scaled

# The eighth sign of a group makes the number of negative ones even.
SIGNS = np.array([i | (i.bit_count() & 1) << 7 for i in range(128)], np.uint8)
_TRIALS = np.array([0.75, 0.9, 1.05], np.float32)  # of what a largest magnitude is taken for
_DISTANCES = 1 << 18  # computed at a time: they stay in the cache


def spread(ops: ArrayOps, x: Array, shifts: tuple[int, ...], bits: int) -> Array:
    """The fields of integers at these bits: [..., n] -> [..., n * len(shifts)]."""
    shape, kind = ops.shape(x), ops.dtype(x)
    wide = (*shape, len(shifts))
    moved = ops.shift_right(
        ops.broadcast(x, wide, range(len(shape))),
        ops.broadcast(ops.constant(np.asarray(shifts, kind)), wide, [len(shape)]),
    )
    return ops.reshape(ops.bit_and(moved, (1 << bits) - 1), (*shape[:-1], shape[-1] * len(shifts)))


def joined(ops: ArrayOps, low: Array, high: Array) -> Array:
    """Indices i16 of low bytes i8 and of the bits above them."""
    high = ops.convert(high, np.int16)
    low = ops.bit_and(ops.convert(low, np.int16), 0xFF)
    return ops.bit_or(low, ops.shift_left(high, 8))


class GridFormat(GgmlFormat):
    """Attributes:
    grid: name of the set.
    values: what the levels of a point stand for.
    unit: what scales are multiplied by besides.
    factor_bits: of a factor.
    factors: where they lie, in types that keep them apart from all else."""

    block, in_registers, together = 256, False, 8
    grid: ClassVar[str]
    values: ClassVar[np.ndarray]
    unit: ClassVar[float]
    factor_bits: ClassVar[int] = 4
    factors: ClassVar[Numbers]

    @abstractmethod
    def read(self, ops: ArrayOps, blocks: Array) -> tuple[Array, Array, Array, Array]:
        """Indices i16 [..., 256 / size]; bits of the codes' signs or shifts, integers [..., 256];
        factors i8 [..., 256 / run]; scale f32 [..., 1]."""

    @abstractmethod
    def write_points(self, index: np.ndarray, bits: np.ndarray, out: np.ndarray) -> None:
        """Writes indices u16 [n, groups] and the bits u8 [n, 256] of codes; scales stay."""

    def write_scales(self, d: np.ndarray, factors: np.ndarray, out: np.ndarray) -> None:
        """Writes f32 [n, 1] and factors u8 [n, runs] into bytes that are zero there."""
        out[:, :2] = half_bytes(d)
        self.factors.write(factors, out)

    @property
    def size(self) -> int:
        """Values of a group."""
        return int(grid(self.grid).shape[1])

    def unpack(self, ops: ArrayOps, blocks: Array) -> Triple:
        index, bits, factors, d = self.read(ops, blocks)
        width = 16 // self.size
        shifts = tuple(range(0, 16, width))
        points = ops.take(words(self.grid), ops.convert(index, np.int32))
        levels = ops.convert(spread(ops, points, shifts, width), np.int32)
        codes = self.coded(ops, ops.take(self.values, levels), ops.convert(bits, np.int8))
        odd = ops.add(ops.add(factors, factors), 1)
        return codes, scaled(ops, ops.mul(d, self.unit), odd), None

    def coded(self, ops: ArrayOps, values: Array, bits: Array) -> Array:
        """Values negated where a bit is set, i8."""
        return ops.mul(values, ops.sub(1, ops.add(bits, bits)))

    @property
    def limits(self) -> tuple[int, int]:
        most = int(self.values.max())
        return -most, most

    @cached_property
    def points(self) -> np.ndarray:
        """f32 [points, size]."""
        return self.values.astype(np.float32)[grid(self.grid)]

    def write(self, x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
        """Tries some scales for each run: the one whose nearest points lose least."""
        scale = self._search(x, importance).reshape(len(x), -1)
        most = np.float32((2 << self.factor_bits) - 1)
        d = round_to_half(scale.max(axis=1, keepdims=True) / (most * np.float32(self.unit)))
        factors = np.rint((scale * reciprocal(d * np.float32(self.unit)) - 1) / 2)
        factors = np.clip(factors, 0, (1 << self.factor_bits) - 1)
        scale = d * np.float32(self.unit) * (2 * factors + 1)
        out[:] = 0
        self.write_scales(d, factors.astype(np.uint8), out)
        wanted = x.reshape(len(x), -1, self.run) * reciprocal(scale)[..., None]
        index, bits, _ = self.nearest(wanted.reshape(x.shape), importance)
        self.write_points(index, bits, out)

    def _search(self, x: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Scales f32 [n * 256 / run] >= 0, by least squares for the codes of each trial."""
        runs = x.reshape(-1, self.run)
        w = np.float32(1) if weights is None else weights.reshape(runs.shape)
        largest = np.abs(runs).max(axis=1)
        scale, best = np.zeros_like(largest), np.zeros_like(largest)
        most = np.float32(self.limits[1])
        alike = most / max(self.values.min(), 1)  # all magnitudes the least, where they are equal
        for trial in (*_TRIALS, alike) if self.values.min() > 0 else _TRIALS:
            inverse = reciprocal(largest * trial / most)
            *_, codes = self.nearest((runs * inverse[:, None]).reshape(x.shape), weights)
            codes = codes.reshape(runs.shape)
            product = (codes * runs * w).sum(axis=1)
            s = product * reciprocal((codes * codes * w).sum(axis=1))
            better = s * product > best
            scale, best = np.where(better, s, scale), np.where(better, s * product, best)
        return scale

    def nearest(
        self, wanted: np.ndarray, weights: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Indices u16 [n, groups], bits u8 [n, 256] and the codes f32 [n, 256] of the nearest
        points to f32 [n, 256], or as many as are chosen together."""
        negative = self.signs(wanted)
        sign = np.float32(1) - 2 * negative
        index, _ = nearest(self.points, wanted * sign, weights)
        codes = self.points[index].reshape(wanted.shape) * sign
        return index.reshape(len(wanted), -1), negative.astype(np.uint8), codes

    def near(self, x: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        *_, codes = self.nearest(x, weights)
        return codes

    def signs(self, wanted: np.ndarray) -> np.ndarray:
        """Bool [n, 256], true where a code is negative."""
        return np.signbit(wanted)

    def put(self, codes: np.ndarray, out: np.ndarray) -> None:
        """Groups of codes that are no point become the nearest one."""
        wanted = codes.astype(np.float32) + np.float32(self.limits[0])
        index, bits, _ = self.nearest(wanted, None)
        self.write_points(index, bits, out)


def nearest(
    points: np.ndarray, wanted: np.ndarray, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Index u16 and weighted squared distance (less what all points share) f32, [groups] both."""
    groups, squares = wanted.reshape(-1, points.shape[1]), np.square(points).T
    index, least = np.empty(len(groups), np.uint16), np.empty(len(groups), np.float32)
    fixed, step = squares.sum(axis=0), max(1, _DISTANCES // len(points))
    for i in range(0, len(groups), step):
        part = groups[i : i + step]
        if weights is not None:
            w = weights.reshape(groups.shape)[i : i + step]
            part, fixed = w * part, w @ squares
        loss = part @ (-2 * points.T)
        loss += fixed
        index[i : i + step] = found = loss.argmin(axis=1)
        least[i : i + step] = np.take_along_axis(loss, found[:, None], 1)[:, 0]
    return index, least


class EvenSigns(GridFormat):
    """Seven signs are stored for a group of 8, in 7 bits."""

    def signs(self, wanted: np.ndarray) -> np.ndarray:
        groups = wanted.reshape(-1, 8)
        negative = np.signbit(groups)
        odd = np.flatnonzero(negative.sum(axis=1) & 1)
        negative[odd, np.abs(groups[odd]).argmin(axis=1)] ^= True
        return negative.reshape(wanted.shape)

    def expanded(self, ops: ArrayOps, index: Array) -> Array:
        """[..., groups] in 0..127 -> the signs of each of their values [..., 8 * groups]."""
        found = ops.take(SIGNS.view(np.int8), ops.convert(index, np.int32))
        return fields(ops, found, 1, 1)
