"""Packing of `Gemv`'s block-scaled weights, at compile time."""

import math
from dataclasses import dataclass

import numpy as np

from jq.base.errors import InternalError
from jq.kernels.gemv.layout import PLANES, Layout, Stored
from jq.kernels.tensor import Array, TensorType, cut_last, pad_last

Scale = Array | tuple[Array, Array]  # or integers and what they are multiplied by


@dataclass(frozen=True, kw_only=True)
class Packed(Stored):
    """A product whose weights are packed as they are cut."""

    def pack(
        self,
        codes: Array,
        scale: Scale | None = None,
        minimum: Scale | None = None,
        zero: Array | None = None,
    ) -> Array:
        """The weights' operand: int8 codes [K, N] (signed, or from 0 with a minimum) and scales.

        `scale`, `minimum` and `zero` are [blocks, N]; or, with `outer`, pairs of integers
        [blocks, N] and factors [chunks, N]; or None where it is an operand by column.
        """
        half, layout = 1 << (self.bits - 1), Layout.of(self)
        from_zero = self.minimum or self.zero
        low, high = (0, 2 * half - 1) if from_zero else (-half, half - 1)
        if codes.shape != (self.k, self.n) or codes.min() < low or codes.max() > high:
            raise InternalError(f"codes do not fit {self.label}")
        blocks = math.ceil(self.blocks / layout.blocks) * layout.blocks
        stored = _longer(codes.astype(np.int16), self.blocks * self.block) + self.offset
        stored = _longer(stored.astype(np.uint8), blocks * self.block)
        given = [s for s in (scale, minimum) if s is not None]
        levels = [g if isinstance(g, tuple) else (g,) for g in given]
        chunks = blocks // layout.blocks

        def cut(values: Array) -> Array:
            return _cut(self, np.ascontiguousarray(values)).view(np.uint8)

        parts = [
            cut(_longer(values.astype(TensorType((), self.scale).dtype), blocks))
            for values, *_ in levels
        ]
        if zero is not None:
            points, lanes = _cut(self, _longer(zero.astype(np.uint8), blocks)), self.target.lanes
            first, second = points[..., :lanes], points[..., lanes:]
            parts.append(first | second << np.uint8(4) if self.vectors > 1 else first.copy())
        shift, planes = 0, []
        for plane in PLANES[self.bits]:
            fields = (stored >> np.uint8(shift)) & np.uint8((1 << plane) - 1)
            planes.append(_plane(self, fields, plane))
            shift += plane
        parts += reversed(planes)
        where = self.workgroups, self.streams
        records = np.concatenate([p.reshape(*where, blocks, -1) for p in parts], axis=3)
        factors = [cut(f.astype(np.float16)) for _, *factor in levels for f in factor]
        whole = [*factors, records.reshape(*where, chunks, -1)]
        return np.ascontiguousarray(np.concatenate(whole, axis=3).swapaxes(0, 1)).view(np.int8)


def _longer(values: Array, rows: int) -> Array:
    """[rows, N], zeros added after."""
    return np.pad(values, ((0, rows - len(values)), (0, 0)))


def _cut(kernel: Stored, values: Array) -> Array:
    """[..., N] -> [workgroups, streams, ..., width of a panel]; the last one ends at N."""
    padded = pad_last(values, max(kernel.width, kernel.n))
    cut = cut_last(padded, kernel.workgroups, kernel.width)
    return np.stack(np.split(cut, kernel.streams, -1), 1)


def _plane(kernel: Stored, fields: Array, plane: int) -> Array:
    """Fields of `plane` bits [K', N] -> bytes [workgroups, streams, ...].

    A step is one group of every column; `8 / plane` groups share its bytes, the first in the
    lowest bits.
    """
    group, per_byte = kernel.unit.dot.group, 8 // plane
    cut = _cut(kernel, fields)
    cut = cut.reshape(*cut.shape[:2], -1, per_byte, group, cut.shape[-1])
    packed = cut[:, :, :, 0]
    for i in range(1, per_byte):
        packed = packed | (cut[:, :, :, i] << np.uint8(i * plane))
    return np.ascontiguousarray(packed.transpose(0, 1, 2, 4, 3))
