"""Common base of all ggml block types: layout, checks, and decoding from codes and scales.

A tensor is stored as its raw ggml bytes, in one part `blocks` of i8 bits. The blocked
axis (the contraction axis of a weight) is moved last and cut into blocks, so a
[in, out] kernel blocked along `in` is stored like ggml's own rows: [out, in / 32, bytes].

Every type is `value = code * scale + offset` with one scale (and offset) for each run of `run`
values. The products are exact in float32, so the sum rounds once, fused or not. Layouts and
formulas: `ggml-common.h` and `gguf.quants`, which the tests take as oracle."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from jq.base.errors import FormatError
from jq.formats.arrays import Array, ArrayOps, nearest_codes
from jq.formats.base import Encoding, Format, Integers, Parts
from jq.formats.checks import as_float32, check_finite, check_not_empty, check_options, check_shape

_CHUNK = 1 << 16  # values encoded at a time: their float32 temporaries stay in the cache
# No scale in float16 reaches it: 65504 * 127 * 32, of q6_k, is the most that a type can hold.
_LARGEST = 2.0**30

Triple = tuple[Array, Array, Array | None]


def blocked_axis(enc: Encoding) -> int:
    """The one axis that is cut into blocks."""
    axes = [i for i, b in enumerate(enc.block) if b > 1]
    return axes[0] if axes else -1


class GgmlFormat(Format):
    """A ggml type: `block` values in `bytes` bytes, one scale per `run` values."""

    block = 32
    bytes: ClassVar[int]
    run: ClassVar[int] = 32
    half_scales: ClassVar[bool] = True  # in float16
    halves: ClassVar[tuple[int, ...]] = (0,)  # the bytes where float16 factors of a block begin
    numbers: ClassVar[Any]  # `bits.Numbers`: where its codes lie, counted from the smallest
    table: ClassVar[np.ndarray | None] = None  # its codes, ascending, where they are no run
    together: ClassVar[int] = 1  # codes along a block that are chosen together
    integer_bits = 8

    def check(self, enc: Encoding) -> None:
        check_not_empty(enc)
        check_options(enc, self.options(enc))
        axis = blocked_axis(enc)
        if axis < 0 or any(b != (self.block if i == axis else 1) for i, b in enumerate(enc.block)):
            raise FormatError(
                f"{self.name} needs block {self.block} on one axis and 1 on the others, "
                f"got {enc.block}"
            )
        if enc.shape[axis] % self.block:
            raise FormatError(
                f"{self.name} cannot store axis {axis} of shape {enc.shape}: "
                f"its length is no multiple of {self.block}",
                hint="use an affine or MX format, which pad, or leave the tensor in float",
            )
        if enc.scheme not in self.schemes:
            hint = "leave the scheme at 'symmetric'; offsets are part of the type"
            raise FormatError(f"{self.name} has no scheme to choose, got {enc.scheme!r}", hint=hint)

    def storage(self, enc: Encoding) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        axis = blocked_axis(enc)
        lead = enc.shape[:axis] + enc.shape[axis + 1 :]
        shape = (*lead, enc.shape[axis] // self.block, self.bytes)
        return {"blocks": (shape, np.dtype(np.int8))}

    def encode(
        self, x: np.ndarray, enc: Encoding, importance: np.ndarray | None = None
    ) -> dict[str, np.ndarray]:
        """`importance` f32 [length of the blocked axis] is what a search for scales weighs errors
        by, such as the mean square of what an index is multiplied by."""
        self.check(enc)
        check_shape(x, enc)
        rows = np.moveaxis(x, blocked_axis(enc), -1)
        shape, dtype = self.storage(enc)["blocks"]
        out = np.empty(shape, np.uint8)
        weights = None if importance is None else _positive(importance).reshape(-1, self.block)
        self._encode(rows.reshape(*shape[:-1], self.block), out, enc, weights)
        return {"blocks": out.view(dtype)}

    def _encode(
        self, x: np.ndarray, out: np.ndarray, enc: Encoding, weights: np.ndarray | None
    ) -> None:
        """[..., n, block] in any memory order -> [..., n, bytes], a cacheful at a time.

        A transposed weight is copied in strips: as they lie first, which uses each cache line whole
        and is four times faster, then into block order."""
        if x.ndim > 2 and x[0].size > _CHUNK:
            for part, blocks in zip(x, out, strict=True):
                self._encode(part, blocks, enc, weights)
            return
        step = max(1, _CHUNK // x[0].size)
        for i in range(0, len(x), step):
            strip = as_float32(x[i : i + step])
            check_finite(strip, enc)
            self._check_size(strip)
            if not strip.flags.c_contiguous:
                strip = np.ascontiguousarray(strip.copy(order="K"))
            given = None
            if weights is not None:
                part = weights[i : i + step] if x.ndim == 2 else weights
                given = np.broadcast_to(part, strip.shape).reshape(-1, self.block)
            blocks = out[i : i + step].reshape(-1, self.bytes)
            self.write(strip.reshape(-1, self.block), blocks, given)

    def _check_size(self, x: np.ndarray) -> None:
        """Refuses what a search would square and sum up, which overflows far beyond."""
        most = max(x.max(initial=0), -x.min(initial=0))
        if self.half_scales and most > _LARGEST:
            raise FormatError(f"a weight of {most:g} needs a ggml block scale beyond float16")

    def decode(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Array:
        codes, scale, offset = self.unpack(ops, parts["blocks"])
        value = ops.mul(ops.convert(codes, np.float32), self._spread(ops, scale))
        if offset is not None:
            value = ops.add(value, self._spread(ops, offset))
        return self._logical(ops, value, enc)

    def integers(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Integers:
        codes, scale, offset = self.integer_parts(ops, parts, enc)
        block = tuple(self.run if b > 1 else b for b in enc.block)
        return Integers(codes, scale, None, offset, block)

    def run_along(self, enc: Encoding, axes: Iterable[int]) -> int:
        return self.run

    def integer_parts(self, ops: ArrayOps, parts: Parts, enc: Encoding) -> Triple:
        """The codes and what turns them into values: `value = codes * scale + offset`.

        Returns i8 codes of `enc.shape`; f32 scale, and f32 offset or None, of the same shape but
        for the blocked axis, which has one entry per `run` values. All three are exact."""
        codes, scale, offset = self.unpack(ops, parts["blocks"])
        return (
            self._logical(ops, codes, enc),
            self._logical(ops, scale, enc),
            None if offset is None else self._logical(ops, offset, enc),
        )

    @abstractmethod
    def unpack(self, ops: ArrayOps, blocks: Array) -> Triple:
        """i8 [..., bytes] -> codes i8 [..., block], scale and offset f32 [..., block / run]."""

    @abstractmethod
    def write(self, x: np.ndarray, out: np.ndarray, importance: np.ndarray | None = None) -> None:
        """Quantizes finite f32 x [n, block] into u8 out [n, bytes]; `importance` has x's shape."""

    @property
    @abstractmethod
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest code."""

    def near(self, x: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """The codes nearest to numbers f32 of any shape, which it may overwrite; of several that
        are chosen together to [n, `together`], whose errors have `weights` of the same shape."""
        if self.table is None:
            return nearest_codes(x, *self.limits)
        levels = self.table.astype(np.float32)
        found: np.ndarray = levels[np.searchsorted((levels[1:] + levels[:-1]) / 2, x)]
        return found

    def put(self, codes: np.ndarray, out: np.ndarray) -> None:
        """Writes codes u8 [n, block], 0 the smallest, into u8 out [n, bytes]; scales stay."""
        self.numbers.write(codes, out)

    def with_codes(self, parts: Parts, codes: np.ndarray, enc: Encoding) -> dict[str, np.ndarray]:
        """The same scales with other codes, integers of `enc.shape` within `limits`."""
        rows = np.moveaxis(codes, blocked_axis(enc), -1).reshape(-1, self.block)
        blocks = np.array(parts["blocks"])
        self.put(
            (rows - self.limits[0]).astype(np.uint8), blocks.reshape(-1, self.bytes).view("u1")
        )
        return {"blocks": blocks}

    def times(self, blocks: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """Blocks i8 [..., bytes], their values times f32 [...] but for the rounding of scales; one
        with a scale that float16 does not hold to 2^-9 stays: two together may be far off."""
        found = np.array(blocks)
        old = [np.ascontiguousarray(found[..., at : at + 2]).view("<f2") for at in self.halves]
        with np.errstate(over="ignore", invalid="ignore"):
            wanted = [scale * factors[..., None] for scale in old]
            new = [scale.astype("<f2") for scale in wanted]
            fits = [abs(a - b) <= 2**-9 * abs(b) for a, b in zip(new, wanted, strict=True)]
        for at, scale in zip(self.halves, new, strict=True):
            np.copyto(found[..., at : at + 2], scale.view(np.int8), where=np.all(fits, 0))
        return found

    def _spread(self, ops: ArrayOps, scale: Array) -> Array:
        """Repeats every entry `run` times: [..., block / run] -> [..., block]."""
        shape = ops.shape(scale)
        wide = ops.broadcast(scale, (*shape, self.run), range(len(shape)))
        return ops.reshape(wide, (*shape[:-1], self.block))

    def _logical(self, ops: ArrayOps, x: Array, enc: Encoding) -> Array:
        """[..., n_blocks, m] -> the logical axis order, the blocked axis of length n_blocks * m."""
        *lead, count, inner = ops.shape(x)
        flat = ops.reshape(x, [*lead, count * inner])
        axis, last = blocked_axis(enc), len(lead)
        if axis == last:
            return flat
        return ops.transpose(flat, [*range(axis), last, *range(axis, last)])


def _positive(importance: np.ndarray) -> np.ndarray:
    """No index counts for nothing: what never occurred in a text may occur."""
    values = importance.astype(np.float32)
    mean = values.mean()
    found: np.ndarray = np.maximum(values, 1e-4 * mean) if mean > 0 else np.ones_like(values)
    return found


def row_max(x: np.ndarray) -> np.ndarray:
    """Largest value of each block, [n, block] -> [n, 1]; NumPy is slow along a short last axis."""
    return np.ascontiguousarray(x.T).max(axis=0)[:, None]


def reciprocal(d: np.ndarray) -> np.ndarray:
    """1 / d, and 0 where d is 0 or so small that the quotient overflows (f16 stores 0 there)."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.float32(1) / d
    return np.where(np.isfinite(inverse), inverse, np.float32(0))
