"""The handful of array operations that formats are written in.

A format's decode, and the quantization of an activation, are written once against
this protocol. NumPy implements it here (the specification), StableHLO in
`jq.ir.arrays` (the program). Element types are NumPy dtypes, `ml_dtypes` included.
Semantics are StableHLO's, which for every operation below are also NumPy's:
integer arithmetic wraps, float arithmetic is IEEE in the operand's own type."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

Array = Any  # what an implementation computes with: np.ndarray, or an MLIR value


class ArrayOps(Protocol):
    """Array operations shared by NumPy and StableHLO. Operands have equal shape and type; a number
    in the place of one is an array of it like the others (`arrays_of`)."""

    def constant(self, value: np.ndarray) -> Array: ...
    def shape(self, x: Array) -> tuple[int, ...]: ...
    def dtype(self, x: Array) -> np.dtype[Any]: ...
    def convert(self, x: Array, dtype: Any) -> Array: ...
    def bitcast(self, x: Array, dtype: Any) -> Array: ...  # same width only
    def reshape(self, x: Array, shape: Sequence[int]) -> Array: ...
    def transpose(self, x: Array, perm: Sequence[int]) -> Array: ...
    def broadcast(self, x: Array, shape: Sequence[int], dims: Sequence[int]) -> Array: ...
    def slice(self, x: Array, start: Sequence[int], limit: Sequence[int]) -> Array: ...
    def pad(self, x: Array, value: Array, low: Sequence[int], high: Sequence[int]) -> Array: ...
    def concatenate(self, xs: Sequence[Array], axis: int) -> Array: ...
    def take(self, table: np.ndarray, index: Array) -> Array: ...  # 1-D table, integer index
    def add(self, a: Array, b: Array) -> Array: ...
    def sub(self, a: Array, b: Array) -> Array: ...
    def mul(self, a: Array, b: Array) -> Array: ...
    def div(self, a: Array, b: Array) -> Array: ...
    def maximum(self, a: Array, b: Array) -> Array: ...
    def minimum(self, a: Array, b: Array) -> Array: ...
    def abs(self, a: Array) -> Array: ...
    def round_even(self, a: Array) -> Array: ...
    def bit_and(self, a: Array, b: Array) -> Array: ...
    def bit_or(self, a: Array, b: Array) -> Array: ...
    def shift_left(self, a: Array, b: Array) -> Array: ...
    def shift_right(self, a: Array, b: Array) -> Array: ...  # logical: zeros come in
    def equal(self, a: Array, b: Array) -> Array: ...
    def select(self, pred: Array, a: Array, b: Array) -> Array: ...
    def reduce_max(self, x: Array, axes: Sequence[int]) -> Array: ...  # axes kept, size 1
    def reduce_min(self, x: Array, axes: Sequence[int]) -> Array: ...


def clip(ops: ArrayOps, x: Array, low: Array | float, high: Array | float) -> Array:
    """`min(max(x, low), high)`."""
    return ops.minimum(ops.maximum(x, low), high)


class IntegerOps(ArrayOps, Protocol):
    """The further operations that integer-only arithmetic needs."""

    def shift_right_signed(self, a: Array, b: Array) -> Array: ...  # the sign comes in
    def quotient(self, a: Array, b: Array) -> Array: ...  # of integers a >= 0, b > 0: floor
    def leading_zeros(self, a: Array) -> Array: ...  # zero bits in front of an integer's first one
    def reduce_sum(self, x: Array, axes: Sequence[int]) -> Array: ...  # of integers; axes kept


def arrays_of(ops: ArrayOps, operands: Sequence[Array | float]) -> list[Array]:
    """Operands of an operation, the numbers among them as arrays like the last of the others."""
    numbers = [isinstance(x, int | float) for x in operands]
    if not any(numbers):
        return list(operands)
    like = next(x for x, number in zip(operands[::-1], numbers[::-1], strict=True) if not number)
    kind, shape = ops.dtype(like), ops.shape(like)
    return [
        ops.broadcast(ops.constant(np.asarray(x, kind)), shape, ()) if number else x
        for x, number in zip(operands, numbers, strict=True)
    ]


def halved(ops: ArrayOps, level: Sequence[Array], index: Array, bit: int = 1) -> Array:
    """One of some arrays at each place, by the bits of an integer index from `bit` on."""
    while len(level) > 1:
        odd = ops.equal(ops.bit_and(index, bit), bit)
        pairs = zip(level[::2], [*level[1::2], level[-1]], strict=False)
        level = [ops.select(odd, b, a) for a, b in pairs]
        bit *= 2
    return level[0]


Dense = np.ndarray[Any, np.dtype[Any]]


def _ufunc(function: Callable[..., Any]) -> Callable[[Any, Array, Array], Dense]:
    """A binary operation on arrays of one type; IEEE specials and integer wrap are silent."""

    def apply(ops: Any, a: Array, b: Array) -> Dense:
        a, b = arrays_of(ops, (a, b))
        if a.dtype != b.dtype or a.shape != b.shape:
            raise TypeError(f"operands differ: {a.dtype}{a.shape} and {b.dtype}{b.shape}")
        with np.errstate(all="ignore"):
            return np.asarray(function(a, b))

    return apply


def _divide(a: Dense, b: Dense) -> Dense:
    """Float division; StableHLO's integer division truncates, which no format needs."""
    if np.issubdtype(a.dtype, np.integer):
        raise TypeError("integer division is not an array operation of formats")
    return np.asarray(a / b)


def _shift(function: Callable[..., Any]) -> Callable[[Dense, Dense], Dense]:
    """Shift on the operand's bits as an unsigned number; by its width or more gives 0."""

    def apply(a: Dense, b: Dense) -> Dense:
        bits = f"u{a.dtype.itemsize}"
        return np.asarray(function(a.view(bits), b.view(bits))).view(a.dtype)

    return apply


class NumpyOps:
    """`ArrayOps` on NumPy arrays."""

    def constant(self, value: np.ndarray) -> Dense:
        return np.asarray(value)

    def shape(self, x: Dense) -> tuple[int, ...]:
        return tuple(x.shape)

    def dtype(self, x: Dense) -> np.dtype[Any]:
        return x.dtype

    def convert(self, x: Dense, dtype: Any) -> Dense:
        """Rounds half to even between floats. Float to integer is for values in range."""
        with np.errstate(all="ignore"):
            return x.astype(dtype, copy=False)

    def bitcast(self, x: Dense, dtype: Any) -> Dense:
        if np.dtype(dtype).itemsize != x.dtype.itemsize:
            raise TypeError(f"bitcast from {x.dtype} to {np.dtype(dtype)} changes the width")
        return x.view(dtype)

    def reshape(self, x: Dense, shape: Sequence[int]) -> Dense:
        return x.reshape(tuple(shape))

    def transpose(self, x: Dense, perm: Sequence[int]) -> Dense:
        return np.transpose(x, tuple(perm))

    def broadcast(self, x: Dense, shape: Sequence[int], dims: Sequence[int]) -> Dense:
        """Axis i of `x` becomes axis `dims[i]` of the result; size 1 is repeated."""
        spread = [1] * len(shape)
        for axis, size in zip(dims, x.shape, strict=True):
            spread[axis] = size
        return np.broadcast_to(x.reshape(spread), tuple(shape))

    def slice(self, x: Dense, start: Sequence[int], limit: Sequence[int]) -> Dense:
        return x[tuple(slice(a, b) for a, b in zip(start, limit, strict=True))]

    def pad(self, x: Dense, value: Dense, low: Sequence[int], high: Sequence[int]) -> Dense:
        widths = list(zip(low, high, strict=True))
        return np.pad(x, widths, constant_values=value.item()) if widths else x

    def concatenate(self, xs: Sequence[Dense], axis: int) -> Dense:
        return np.concatenate(list(xs), axis=axis)

    def take(self, table: np.ndarray, index: Dense) -> Dense:
        return np.asarray(table[index])

    add = _ufunc(np.add)
    sub = _ufunc(np.subtract)
    mul = _ufunc(np.multiply)
    div = _ufunc(_divide)
    maximum = _ufunc(np.maximum)
    minimum = _ufunc(np.minimum)
    bit_and = _ufunc(np.bitwise_and)
    bit_or = _ufunc(np.bitwise_or)
    shift_left = _ufunc(_shift(np.left_shift))
    shift_right = _ufunc(_shift(np.right_shift))
    shift_right_signed = _ufunc(np.right_shift)
    quotient = _ufunc(lambda a, b: np.asarray(a // np.where(b == 0, 1, b)))
    equal = _ufunc(np.equal)

    def leading_zeros(self, a: Dense) -> Dense:
        bits = 8 * a.dtype.itemsize
        count = np.zeros(a.shape, a.dtype)
        for bit in range(bits - 1, -1, -1):
            count += (a >> a.dtype.type(bit)) == 0  # for a >= 0: bits from `bit` upwards are zero
        return np.where(a < 0, a.dtype.type(0), count)

    def abs(self, a: Dense) -> Dense:
        return np.asarray(np.abs(a))

    def round_even(self, a: Dense) -> Dense:
        return np.asarray(np.rint(a))

    def select(self, pred: Dense, a: Array, b: Array) -> Dense:
        pred, a, b = arrays_of(self, (pred, a, b))
        return np.asarray(np.where(pred, a, b))

    def reduce_max(self, x: Dense, axes: Sequence[int]) -> Dense:
        return _reduce(np.maximum, x, tuple(axes))

    def reduce_sum(self, x: Dense, axes: Sequence[int]) -> Dense:
        return np.asarray(x.sum(axis=tuple(axes), keepdims=True, dtype=x.dtype))

    def reduce_min(self, x: Dense, axes: Sequence[int]) -> Dense:
        return _reduce(np.minimum, x, tuple(axes))


def _reduce(combine: np.ufunc, x: Dense, axes: tuple[int, ...]) -> Dense:
    """NumPy is slow on short rows: they are halved first, by pairs along the whole array."""
    if x.ndim - 1 in axes:
        while x.shape[-1] % 2 == 0 and x.shape[-1] <= 256:
            x = combine(x[..., ::2], x[..., 1::2])
    return np.asarray(combine.reduce(x, axis=axes, keepdims=True))


NUMPY = NumpyOps()


def nearest_codes(codes: np.ndarray, low: int, high: int) -> np.ndarray:
    """The codes in range that are nearest to numbers f32, in their place; `np.clip` takes longer
    than all the rest of what GPTQ does to a row."""
    np.rint(codes, out=codes)
    np.maximum(codes, low, out=codes)
    return np.minimum(codes, high, out=codes)
