"""`IntegerOps` as TFLite's operators on int32 and int64, on which LiteRT's kernels all agree.

The functions of `jq.formats` write themselves with it. Operands broadcast, as those of operators
do: arrays have three axes at most. What constants give is computed here, by NumPy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partialmethod, wraps
from typing import Any

import numpy as np

from jq.device.forms.tflite.builder import Builder
from jq.device.network import Tensor
from jq.formats.arrays import NumpyOps, arrays_of, clip
from jq.formats.requantize import Rescaling, Shifts
from jq.frontends.tflite.schema import TYPES

BELOW = np.float32(2**31 - 128)  # the largest float32 number that is an int32 one
I32, I64, F32 = np.int32, np.int64, np.float32
Array = Any  # np.ndarray | Tensor


def _operator(kind: str, dtype: str = "") -> Callable[..., Array]:
    return lambda self, *xs: self.op(kind, *xs, dtype=dtype or self.dtype(xs[-1]).name)


def _known(name: str, emit: Callable[..., Array]) -> Callable[..., Array]:
    """A method that NumPy computes where all operands are constants."""
    numpy = getattr(NumpyOps, name)

    @wraps(emit)
    def apply(self: "Integers", *operands: Array) -> Array:
        xs = arrays_of(self, operands)
        if any(isinstance(x, Tensor) for x in xs):
            return emit(self, *xs)
        return numpy(self, *np.broadcast_arrays(*xs))

    return apply


class Integers(NumpyOps):
    """Adds operators to a file; values are tensors of it, or NumPy's arrays."""

    def __init__(self, b: Builder) -> None:
        self.b = b

    def op(self, kind: str, *xs: Array, shape: Any = None, dtype: str = "", **given: Any) -> Tensor:
        """An operator whose result has the shape to which operands broadcast, and the first's type,
        unless others are given."""
        made = tuple(np.broadcast_shapes(*(x.shape for x in xs)) if shape is None else shape)
        operands = [x if isinstance(x, Tensor) else self.b.constant(x, x.dtype.name) for x in xs]
        name = self.b.new(self.b.name)
        return self.b.op(kind, operands, Tensor(name, made, dtype or operands[0].dtype), **given)

    def dtype(self, x: Array) -> np.dtype[Any]:
        return np.dtype(x.dtype)

    def convert(self, x: Array, dtype: Any) -> Array:
        made = np.dtype(dtype).name
        if isinstance(x, np.ndarray) or x.dtype == made:
            return x if isinstance(x, Tensor) else x.astype(made)
        types = TYPES[x.dtype], TYPES[made]
        return self.op("CAST", x, dtype=made, in_data_type=types[0], out_data_type=types[1])

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        if isinstance(x, np.ndarray) or x.shape == tuple(shape):
            return x if isinstance(x, Tensor) else x.reshape(shape)
        return self.op("RESHAPE", x, np.array(shape, I32), shape=shape, new_shape=list(shape))

    def broadcast(self, x: Array, shape: Sequence[int], dims: Sequence[int]) -> Array:
        """The same with another rank: operators do the rest."""
        spread = [1] * len(shape)
        for axis, size in zip(dims, x.shape, strict=True):
            spread[axis] = size
        return self.reshape(x, spread)

    def part(self, x: Tensor, start: Sequence[int], limit: Sequence[int]) -> Tensor:
        size = tuple(b - a for a, b in zip(start, limit, strict=True))
        bounds = (np.array(v, I32) for v in (start, size))
        return x if size == x.shape else self.op("SLICE", x, *bounds, shape=size)

    def take(self, table: np.ndarray, index: Array) -> Array:
        if isinstance(index, np.ndarray):
            return table[index]
        return self.op("GATHER", table, index, shape=index.shape, axis=0)

    def abs(self, a: Array) -> Array:
        return self.maximum(a, self.sub(0, a))

    def _along(self, kind: str, x: Tensor, axes: Sequence[int]) -> Tensor:
        shape = [1 if a in axes else n for a, n in enumerate(x.shape)]
        return self.op(kind, x, np.array(axes, I32), shape=shape, keep_dims=True)

    reduce_max = partialmethod(_along, "REDUCE_MAX")  # type: ignore[assignment]
    reduce_sum = partialmethod(_along, "SUM")  # type: ignore[assignment]

    def _masked(self, a: Array, b: Array) -> Array:
        """`a & b` of a mask `2^n - 1`: the rest, which is not negative."""
        return self.op("FLOOR_MOD", a, self.add(b, 1))

    def _power(self, like: Array, b: Array) -> Array:
        kind = self.dtype(like)
        return self.take(kind.type(1) << np.arange(8 * kind.itemsize - 1, dtype=kind), b)

    def _shifted(self, a: Array, b: Array) -> Array:
        """`a >> b`: of int64 by one number, from both halves."""
        if a.dtype == "int32":
            return self.op("RIGHT_SHIFT", a, b)
        if isinstance(b, Tensor) or (b != b.flat[0]).any():
            return self._divided(a, self._power(a, b))
        by, high = int(b.flat[0]), self._high(a)
        if by >= 32:
            return self.convert(self.shift_right_signed(high, by - 32), I64)
        up = 1 << (32 - by)
        low = self._high(self.mul(self.bit_and(a, (1 << 32) - 1), up))  # what is shifted is < 2^63
        wide = [self.convert(x, I64) for x in (high, low)]
        return self.add(self.mul(wide[0], up), wide[1]) if by else a

    def _high(self, x: Tensor) -> Tensor:
        """The high half of an int64 number."""
        words = self.op("BITCAST", x, shape=[*x.shape, 2], dtype="int32")
        return self.op("GATHER", words, np.array(1, I32), shape=x.shape, axis=len(x.shape))

    def _divided(self, a: Array, b: Array) -> Array:
        """`floor(a / b)` of int64 numbers, |a| <= 2^62, b > 0. A quotient in float32 is right to
        2^-22 of it, so what is left of 2^62 is below 2^41, then 2^19, and the third is exact."""
        rest, by = self.sub(a, self.op("FLOOR_MOD", a, b)), self.convert(b, F32)
        found: Array = np.zeros([1] * len(rest.shape), I64)
        for last in (False, False, True):
            part = self.op("DIV", self.convert(rest, F32), by)
            part = self.convert(self.op("FLOOR", self.add(part, 0.5)), I64)
            found = self.add(found, part)
            rest = rest if last else self.sub(rest, self.mul(part, b))
        return found

    def _zeros(self, a: Array) -> Array:
        """Leading zeros of int64 a >= 0: the powers of two that it does not reach, and the sign."""
        powers, wide = I64(1) << np.arange(63), self.reshape(a, [*a.shape, 1])
        reached = self.op("GREATER_EQUAL", wide, powers, dtype="bool")
        count = self.reduce_sum(self.convert(reached, I64), [len(a.shape)])
        return self.sub(64, self.reshape(count, a.shape))

    add = _known("add", _operator("ADD"))
    sub = _known("sub", _operator("SUB"))
    mul = _known("mul", _operator("MUL"))
    maximum = _known("maximum", _operator("MAXIMUM"))
    minimum = _known("minimum", _operator("MINIMUM"))
    equal = _known("equal", _operator("EQUAL", "bool"))
    select = _known("select", _operator("SELECT_V2"))
    bit_and = _known("bit_and", _masked)
    shift_left = _known("shift_left", lambda self, a, b: self.mul(a, self._power(a, b)))
    shift_right_signed = _known("shift_right_signed", _shifted)
    quotient = _known("quotient", _divided)
    leading_zeros = _known("leading_zeros", _zeros)


@dataclass(frozen=True)
class Floats(Rescaling):
    """`float32` rescales as the operators on floats that they are."""

    def rescale(self, ops: Any, x: Array, mantissa: Array, shifts: Shifts) -> Array:
        left, right = (0 if s is None else s for s in shifts)
        factor = np.ldexp(np.asarray(mantissa, F32), left - right - 31)
        y = ops.op("ROUND", ops.mul(ops.convert(x, F32), factor))
        return ops.convert(clip(ops, y, -BELOW, BELOW), I32)
