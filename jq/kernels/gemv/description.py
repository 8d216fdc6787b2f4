"""Few rows times block-scaled weights of 2 to 8 bits, each weight read once.

    y[m, n] = sum_b x_scale[m, b] * (scale[b, n] * sum_k x[m, k] * w[k, n]
                                     + minimum[b, n] * sum_k x[m, k])

k runs over block b. Weights are stored unsigned (`w + offset`) where the product reads its left
operand so; what the offset adds is a product of the same codes with a constant.

    for group of panels in workgroups:   # `streams` panels of `vectors * lanes` columns
      for tile of rows:
        for chunk of K:                  # `outer` blocks that share a factor, else one block
          for block of chunk:
            acc[rows][digits][streams][vectors], extra[rows][digits] = 0
            for group of codes: codes out of their planes; rows * digits * streams * vectors dots
            y = fma(f32(acc - extra), scale * x_scale, y)    # `scale` times its factor, exact
        epilogue, store

How weights lie does not depend on M. Where registers do not hold all panels of a workgroup for a
tile of rows, parts of them follow each other; of 16 rows or more one panel does, its codes taken
out of their planes once for all rows (`decoded`).

With matrix tiles rows from 16 on take those (`tiled`).

Codes lie in planes of 1, 2, 4 or 8 bits (6 bits are a plane of 4 and one of 2), a byte of a plane
holding the same field of several groups: a shift and a mask bring it out. A panel is one stream in
memory, its scales beside its codes. Several panels are read at once, for a processor fetches each
ahead by itself: four streams give a third more than one. More than that, such as scales by
themselves, would meet in the same sets of the first cache. Each stream goes on where the workgroup
before ended, so nothing that was fetched ahead is in vain.

A number that is more than a code is several: x = x_scale * sum_d 256^d digit[d] (`SplitRows`). The
products of each digit are exact, so three digits give what float activations give.

2 M N K operations; bound by reading N K bits / 8 of weights. The sum over blocks is in f32, in
order, one rounding a block: its error is below (K / block + 1) 2^-24 of the sum of magnitudes."""

import math

import numpy as np

from jq.base.errors import InternalError
from jq.kernels.epilogue.step import Step, check, operand_types
from jq.kernels.gemv.layout import PLANES
from jq.kernels.gemv.stored import Stored
from jq.kernels.tensor import Array, TensorType, cut_last, pad_last

Scale = Array | tuple[Array, Array]  # or integers and what they are multiplied by


class Packed(Stored, shared=True):
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
        [blocks, N] and factors [chunks, N]; or None where it is an operand by column."""
        half, layout = 1 << (self.bits - 1), self.layout
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
    """Fields of `plane` bits [K', N] -> bytes [workgroups, streams, ...]. A step is one group of
    every column; `8 / plane` groups share its bytes, the first in the lowest bits."""
    group, per_byte = kernel.unit.dot.group, 8 // plane
    cut = _cut(kernel, fields)
    cut = cut.reshape(*cut.shape[:2], -1, per_byte, group, cut.shape[-1])
    packed = cut[:, :, :, 0]
    for i in range(1, per_byte):
        packed = packed | (cut[:, :, :, i] << np.uint8(i * plane))
    return np.ascontiguousarray(packed.transpose(0, 1, 2, 4, 3))


LARGEST_SPLIT = 256  # block whose sums of two digits, one shifted by 8 bits, fit 32
SCALES = ("f16", "f32", "i8", "column")


class Gemv(Packed):
    """i8 [M, K] x blocks [K, N] -> [M, N].

    Operands, in order:
        codes: i8 [M, K], signed; [M, digits, K] where there are several, the highest first.
        row scale: f32 [M], or [M, blocks] with `per_block`.
        weights: i8, what `pack` made: codes and scales; of a stack, all.
        chosen: i32 [tiles], of a stack: the weight of each tile; `stack` where it is 0.
        column scale: f32 [N'], where `scale` is `column`.
        what the epilogue's steps name; [N] operands have N' elements (`pad_columns`).

    Attributes:
        epilogue: steps from f32."""

    epilogue: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        check(self.epilogue, "f32")
        super().__post_init__()
        if self.bits not in PLANES or (self.minimum and self.bits == 8):
            raise InternalError(f"no product with {self.bits}-bit weights of this kind")
        if self.scale not in SCALES or (self.scale == "i8") != (self.outer > 0):
            raise InternalError(f"no scales of type {self.scale} with {self.outer} blocks each")
        if self.block < self.least_block(self.bits) or self.block % self.least_block(self.bits):
            raise InternalError(f"blocks of {self.block} do not hold whole bytes")
        if (self.minimum or self.zero) and self.scale == "column":
            raise InternalError("minima and zero points are by block")
        if self.zero and (self.minimum or self.bits > 4 or self.outer):
            raise InternalError("zero points are of up to 4 bits, beside scales of one level")
        if self.m % self.tiles or (self.stack and self.scale == "column"):
            raise InternalError(f"no product with {self.stack} weights of this kind")
        if not 1 <= self.digits <= 3 or (self.digits > 1 and self.block > LARGEST_SPLIT):
            raise InternalError(f"no product of {self.digits} digits in blocks of {self.block}")

    @staticmethod
    def least_block(bits: int) -> int:
        """Factor of a block's length: the number of codes that share bytes."""
        return 4 * 8 // min(PLANES[bits])

    @property
    def label(self) -> str:
        more = "_split" * (self.digits > 1) + f"_of{self.stack}" * (self.stack > 0)
        return f"{super().label}_int{self.bits}_block{self.block}{more}"

    @property
    def operands(self) -> tuple[TensorType, ...]:
        row_scale = (self.m, self.blocks) if self.per_block else (self.m,)
        chunks = math.ceil(self.blocks / self.layout.blocks)
        steps = operand_types(self.epilogue, (self.m, self.n), self.columns)
        split = (self.digits,) if self.digits > 1 else ()
        if self.scale == "column":
            steps.insert(0, TensorType((self.columns,), "f32"))
        if self.stack:
            steps.insert(0, TensorType((self.tiles,), "i32"))
        streams = max(1, self.stack) * self.streams
        return (
            TensorType((self.m, *split, self.k), "i8"),
            TensorType(row_scale, "f32"),
            TensorType((streams, self.workgroups, chunks, self.layout.bytes), "i8"),
            *steps,
        )

    @property
    def results(self) -> tuple[TensorType, ...]:
        return (TensorType((self.m, self.n), check(self.epilogue, "f32")),)
