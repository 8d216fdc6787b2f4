"""How `Gemv` keeps block-scaled weights: packed at compile time, read in order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from jq.errors import InternalError
from jq.kernels.machine.isa import Isa
from jq.kernels.tensor import TensorType

Array = np.ndarray[Any, np.dtype[Any]]
Scale = Array | tuple[Array, Array]  # or integers and what they are multiplied by
# Widths of the planes that codes of so many bits are cut into, the lowest bits first.
PLANES = {2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2), 8: (8,)}


class Stored(Protocol):
    """What the description of a product says about the weights that it keeps (`Gemv`)."""

    @property
    def k(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def bits(self) -> int: ...
    @property
    def block(self) -> int: ...
    @property
    def zero(self) -> bool: ...
    @property
    def minimum(self) -> bool: ...
    @property
    def scale(self) -> str: ...
    @property
    def outer(self) -> int: ...
    @property
    def target(self) -> Isa: ...
    @property
    def label(self) -> str: ...
    @property
    def blocks(self) -> int: ...
    @property
    def vectors(self) -> int: ...
    @property
    def streams(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def workgroups(self) -> int: ...
    @property
    def offset(self) -> int: ...


@dataclass(frozen=True)
class Layout:
    """Where things lie in a chunk of a panel, in bytes: factors, then one record a block.

    Everything is read in the order in which it lies: a processor that fetches ahead loses its
    place at every jump.

    Attributes:
        blocks: of a chunk.
        factors: of scale and of minimum, f16 by column.
        first, record: where records begin, and their length.
        scales: of scale and of minimum, by column; from the start of a record.
        zero: of zero points, a nibble a column: those of the panel's second vector are high.
        planes: of codes; likewise.
    """

    blocks: int
    factors: tuple[int, ...]
    first: int
    record: int
    scales: tuple[int, ...]
    zero: int
    planes: tuple[int, ...]

    @staticmethod
    def of(kernel: Stored) -> Layout:
        width, levels = kernel.width // kernel.streams, 2 if kernel.minimum else 1
        if kernel.scale == "column":
            sizes, levels = [], 0
        else:
            sizes = [width * TensorType((), kernel.scale).dtype.itemsize] * levels
        sizes += [kernel.target.lanes] * kernel.zero
        sizes += [kernel.block * plane // 8 * width for plane in PLANES[kernel.bits]]
        *starts, record = accumulate(sizes, initial=0)
        factors = [2 * width * i for i in range(levels + 1)] if kernel.outer else [0]
        return Layout(
            blocks=kernel.outer or 1,
            factors=tuple(factors[:-1]),
            first=factors[-1],
            record=record,
            scales=tuple(starts[:levels]),
            zero=starts[levels],
            planes=tuple(starts[levels + kernel.zero :]),
        )

    @property
    def bytes(self) -> int:
        return self.first + self.blocks * self.record


def _longer(values: Array, rows: int) -> Array:
    """[rows, N], zeros added behind."""
    return np.pad(values, ((0, rows - len(values)), (0, 0)))


def pack(
    kernel: Stored,
    codes: Array,
    scale: Scale | None,
    minimum: Scale | None = None,
    zero: Array | None = None,
) -> Array:
    """See `Gemv.pack`."""
    half, layout = 1 << (kernel.bits - 1), Layout.of(kernel)
    from_zero = kernel.minimum or kernel.zero
    low, high = (0, 2 * half - 1) if from_zero else (-half, half - 1)
    if codes.shape != (kernel.k, kernel.n) or codes.min() < low or codes.max() > high:
        raise InternalError(f"codes do not fit {kernel.label}")
    blocks = math.ceil(kernel.blocks / layout.blocks) * layout.blocks
    stored = _longer(codes.astype(np.int16), kernel.blocks * kernel.block) + kernel.offset
    stored = _longer(stored.astype(np.uint8), blocks * kernel.block)
    given = [s for s in (scale, minimum) if s is not None]
    levels = [g if isinstance(g, tuple) else (g,) for g in given]
    chunks = blocks // layout.blocks

    def cut(values: Array) -> Array:
        return _cut(kernel, np.ascontiguousarray(values)).view(np.uint8)

    parts = [
        cut(_longer(values.astype(TensorType((), kernel.scale).dtype), blocks))
        for values, *_ in levels
    ]
    if zero is not None:
        points, lanes = _cut(kernel, _longer(zero.astype(np.uint8), blocks)), kernel.target.lanes
        first, second = points[..., :lanes], points[..., lanes:]
        parts.append(first | second << np.uint8(4) if kernel.vectors > 1 else first.copy())
    shift = 0
    for plane in PLANES[kernel.bits]:
        fields = (stored >> np.uint8(shift)) & np.uint8((1 << plane) - 1)
        parts.append(_plane(kernel, fields, plane))
        shift += plane
    where = kernel.workgroups, kernel.streams
    records = np.concatenate([p.reshape(*where, blocks, -1) for p in parts], axis=3)
    factors = [cut(f.astype(np.float16)) for _, *factor in levels for f in factor]
    whole = [*factors, records.reshape(*where, chunks, -1)]
    return np.ascontiguousarray(np.concatenate(whole, axis=3).swapaxes(0, 1)).view(np.int8)


def _cut(kernel: Stored, values: Array) -> Array:
    """[..., N] -> [workgroups, streams, ..., width of a panel]; the last one ends at N."""
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, max(0, kernel.width - kernel.n))])
    starts = [
        min(i * kernel.width, max(0, kernel.n - kernel.width)) for i in range(kernel.workgroups)
    ]
    each = kernel.width // kernel.streams
    return np.stack(
        [
            np.stack(
                [padded[..., s + j * each : s + (j + 1) * each] for j in range(kernel.streams)]
            )
            for s in starts
        ]
    )


def _plane(kernel: Stored, fields: Array, plane: int) -> Array:
    """Fields of `plane` bits [K', N] -> bytes [workgroups, streams, ...].

    A step is one group of every column; `8 / plane` groups share its bytes, the first in the
    lowest bits.
    """
    group, per_byte = kernel.target.dot.group, 8 // plane
    cut = _cut(kernel, fields)
    cut = cut.reshape(*cut.shape[:2], -1, per_byte, group, cut.shape[-1])
    packed = cut[:, :, :, 0]
    for i in range(1, per_byte):
        packed = packed | (cut[:, :, :, i] << np.uint8(i * plane))
    return np.ascontiguousarray(packed.transpose(0, 1, 2, 4, 3))
