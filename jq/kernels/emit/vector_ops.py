"""`ArrayOps` in vector registers: a format's own arithmetic, unrolled inside a kernel.

An array of any rank is one flat vector with a shape beside it. What moves elements is a shuffle
with constant indices, of which LLVM makes the target's unpack and permute instructions."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from iree.compiler import ir
from iree.compiler.dialects import arith

from jq.base.errors import InternalError
from jq.formats.arrays import arrays_of, halved
from jq.kernels.emit.builder import Builder
from jq.kernels.emit.values import attribute, lanes_of, vec
from jq.kernels.machine.isa import Isa
from jq.kernels.tensor import element_name

MAX_COUNTS = 4  # by which the fields of a byte are shifted


@dataclass(frozen=True)
class Array:
    """A flat vector and the shape and NumPy type that it stands for. `picked` says of which
    elements of another vector it is made, `known` what its elements are."""

    value: ir.Value
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    picked: tuple[ir.Value, np.ndarray] | None = None
    known: np.ndarray | None = None


def _binary(integer: Callable[..., Any], real: Callable[..., Any] | None = None) -> Any:
    def apply(self: "VectorOps", a: Any, b: Any) -> Array:
        a, b = arrays_of(self, (a, b))
        op = real if a.dtype.kind in "fV" and real is not None else integer
        return Array(op(a.value, b.value), a.shape, a.dtype)

    return apply


class VectorOps:
    """Emits at the current insertion point of one kernel body."""

    def __init__(self, builder: Builder, isa: Isa) -> None:
        self.b, self.isa = builder, isa

    def array(self, value: ir.Value, shape: Sequence[int], dtype: Any) -> Array:
        return Array(value, tuple(shape), np.dtype(dtype))

    def constant(self, value: np.ndarray) -> Array:
        value = np.asarray(value)
        kind = vec(max(value.size, 1), element_name(value.dtype))
        flat = value.reshape(-1)
        if value.dtype.kind == "i" and len(set(flat.tolist())) > 1:
            return Array(self._constant(kind, flat), value.shape, value.dtype, known=flat)
        if (flat == flat[0]).all() and value.dtype.kind != "b":
            return Array(self.b.constant(kind, flat[0].item()), value.shape, value.dtype)
        return Array(self._constant(kind, flat), value.shape, value.dtype)

    def _constant(self, kind: ir.VectorType, flat: np.ndarray) -> ir.Value:
        numbers = flat.astype(np.int32) if flat.dtype.kind in "ib" else flat.astype(np.float64)
        items = [attribute(kind.element_type, n) for n in numbers]
        return arith.ConstantOp(kind, ir.DenseElementsAttr.get(items, kind)).result

    def shape(self, x: Array) -> tuple[int, ...]:
        return x.shape

    def dtype(self, x: Array) -> np.dtype[Any]:
        return x.dtype

    def convert(self, x: Array, dtype: Any) -> Array:
        old, new = x.dtype, np.dtype(dtype)
        if old == new:
            return x
        kind = vec(math.prod(x.shape), element_name(new))
        floats = (_is_float(old), _is_float(new))
        if floats == (False, True):
            value = (arith.uitofp if old.kind == "b" else arith.sitofp)(kind, x.value)
        elif floats == (True, True):
            widen = new.itemsize > old.itemsize
            value = arith.extf(kind, x.value) if widen else arith.truncf(kind, x.value)
        elif floats == (False, False):
            widen = new.itemsize > old.itemsize or old.kind == "b"
            extend = arith.extui if old.kind == "b" else arith.extsi
            value = extend(kind, x.value) if widen else arith.trunci(kind, x.value)
        else:
            value = arith.fptosi(kind, x.value)  # of numbers in range, as the protocol says
        return Array(value, x.shape, new)

    def bitcast(self, x: Array, dtype: Any) -> Array:
        kind = vec(math.prod(x.shape), element_name(dtype))
        return Array(arith.bitcast(kind, x.value), x.shape, np.dtype(dtype))

    def _pick(self, x: Array, index: np.ndarray) -> Array:
        """The elements at flat positions `index`, in its shape."""
        flat = [int(i) for i in index.reshape(-1)]
        known = None if x.known is None else x.known[index.reshape(-1)]
        if flat == list(range(math.prod(x.shape))):
            return Array(x.value, index.shape, x.dtype, x.picked, known)
        picked = (x.value, index.reshape(-1))
        return Array(self.b.shuffle(x.value, x.value, flat), index.shape, x.dtype, picked, known)

    def _positions(self, x: Array) -> np.ndarray:
        return np.arange(math.prod(x.shape)).reshape(x.shape)

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        return Array(x.value, tuple(shape), x.dtype, x.picked, x.known)

    def transpose(self, x: Array, perm: Sequence[int]) -> Array:
        return self._pick(x, self._positions(x).transpose(perm))

    def broadcast(self, x: Array, shape: Sequence[int], dims: Sequence[int]) -> Array:
        aligned = [1] * len(shape)
        for axis, n in zip(dims, x.shape, strict=True):
            aligned[axis] = n
        order = [int(i) for i in np.argsort(np.asarray(dims, np.int64))]
        index = self._positions(x).transpose(order).reshape(aligned)
        return self._pick(x, np.broadcast_to(index, tuple(shape)))

    def slice(self, x: Array, start: Sequence[int], limit: Sequence[int]) -> Array:
        cut = tuple(slice(a, b) for a, b in zip(start, limit, strict=True))
        return self._pick(x, self._positions(x)[cut])

    def concatenate(self, xs: Sequence[Array], axis: int) -> Array:
        first, *rest = xs
        for other in rest:
            offset = math.prod(first.shape)
            index = np.concatenate([self._positions(first), self._positions(other) + offset], axis)
            flat = [int(i) for i in index.reshape(-1)]  # of two vectors, as of one
            value = self.b.shuffle(first.value, other.value, flat)
            first = Array(value, index.shape, first.dtype)
        return first

    def take(self, table: np.ndarray, index: Array) -> Array:
        """Permutes registers that hold the table, or halves the candidates bit by bit."""
        if len(table) > 16:
            raise InternalError("tables in registers have at most 16 entries")
        lanes, count = self.isa.lanes, math.prod(index.shape)
        if not self.isa.permute or count % lanes:
            entries = [self.broadcast(self.constant(v), index.shape, ()) for v in table]
            return halved(self, entries, index)
        pieces = [
            self._permuted(table, self._pick(index, np.arange(i, i + lanes)))
            for i in range(0, count, lanes)
        ]
        return self.reshape(self.concatenate(pieces, 0), index.shape)

    def _permuted(self, table: np.ndarray, index: Array) -> Array:
        """Numbers for one register of indices. The instruction ignores bits beyond its lanes."""
        lanes, wide = self.isa.lanes, self.convert(index, np.int32)
        words = table if table.dtype == np.float32 else table.astype(np.int32)
        kind, found = vec(lanes, "f32"), []
        for first in range(0, len(table), lanes):
            entries = self.constant(np.resize(words[first : first + lanes], lanes))
            operands = [self.bitcast(entries, np.float32).value, wide.value]
            value = self.b.intrinsic(self.isa.permute, kind, operands)
            found.append(self.bitcast(self.array(value, (lanes,), np.float32), words.dtype))
        return self.convert(halved(self, found, wide, lanes), table.dtype)

    add = _binary(arith.addi, arith.addf)
    sub = _binary(arith.subi, arith.subf)
    mul = _binary(arith.muli, arith.mulf)
    bit_and = _binary(arith.andi)
    bit_or = _binary(arith.ori)
    shift_left = _binary(arith.shli)

    def shift_right(self, a: Any, b: Any) -> Array:
        """Fields of bytes: every vector of bytes is shifted as a whole, once by each count, and the
        fields are picked from the results. Vectors have no shifts of bytes, or by many counts."""
        a, b = arrays_of(self, (a, b))
        counts = [] if b.known is None else sorted({int(n) for n in b.known})
        few = a.dtype == np.int8 and len(counts) <= MAX_COUNTS
        if not few or a.picked is None or b.known is None or lanes_of(a.picked[0]) % 4:
            return Array(arith.shrui(a.value, b.value), a.shape, a.dtype)
        source, index = a.picked
        size = lanes_of(source)
        level = [self._shifted(source, count) for count in counts]
        while len(level) > 1:
            pairs = zip(level[::2], [*level[1::2], level[-1]], strict=False)
            level = [self.b.concat(first, second) for first, second in pairs]
        (joined,) = level
        place = {count: i * size for i, count in enumerate(counts)}
        flat = [place[int(n)] + int(i) for n, i in zip(b.known, index, strict=True)]
        return Array(self.b.shuffle(joined, joined, flat), a.shape, a.dtype)

    def _shifted(self, x: ir.Value, count: int) -> ir.Value:
        """Bytes shifted right by `count`, as words whose bytes are then cut off from each other."""
        if count == 0:
            return x
        words = self.b.bitcast(x, vec(lanes_of(x) // 4, "i32"))
        moved = self.b.bitcast(self.b.shift_right(words, count), x.type)
        return self.b.bit_and(moved, self.b.constant(x.type, 255 >> count))

    div = _binary(arith.divsi, arith.divf)
    maximum = _binary(arith.maxsi, arith.maximumf)
    minimum = _binary(arith.minsi, arith.minimumf)

    def abs(self, x: Array) -> Array:
        return Array(self.b.abs(x.value), x.shape, x.dtype)

    def equal(self, a: Any, b: Any) -> Array:
        a, b = arrays_of(self, (a, b))
        compare, equal = arith.cmpi, arith.CmpIPredicate.eq
        if _is_float(a.dtype):
            compare, equal = arith.cmpf, arith.CmpFPredicate.OEQ
        return Array(compare(equal, a.value, b.value), a.shape, np.dtype(bool))

    def select(self, pred: Array, a: Any, b: Any) -> Array:
        pred, a, b = arrays_of(self, (pred, a, b))
        return Array(arith.select(pred.value, a.value, b.value), a.shape, a.dtype)

    def round_even(self, a: Array) -> Array:
        return Array(self.b.round_to_whole(a.value, self.isa.rounds), a.shape, a.dtype)

    def pad(self, x: Array, value: Array, low: Sequence[int], high: Sequence[int]) -> Array:
        widths, fill = list(zip(low, high, strict=True)), self.broadcast(value, x.shape, ())
        index = np.pad(self._positions(x), widths, constant_values=math.prod(x.shape))
        flat = [int(i) for i in index.reshape(-1)]
        return Array(self.b.shuffle(x.value, fill.value, flat), index.shape, x.dtype)

    def reduce_max(self, x: Array, axes: Sequence[int]) -> Array:
        """Along the last axis that has more than one: by halves, and what is left over."""
        (axis,) = [a for a in axes if x.shape[a] > 1] or axes[:1]
        while (n := x.shape[axis]) > 1:
            half, index = n // 2, self._positions(x)
            parts = (index.take(range(a, a + half), axis) for a in (0, half))
            joined = self.maximum(*(self._pick(x, part) for part in parts))
            rest = [self._pick(x, index.take([n - 1], axis))] * (n % 2)
            x = self.concatenate([joined, *rest], axis)
        return x

    def _refused(self, *_: Any) -> Array:
        raise InternalError("formats have no smallest numbers in registers")

    reduce_min = _refused


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype == ml_dtypes.bfloat16
