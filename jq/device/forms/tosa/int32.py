"""int32 tensors of a TOSA file with Python's operators, and what 62 bits need of them.

TOSA leaves open what a sum beyond 32 bits is: nothing here goes there. Shifts drop bits."""

import math
from dataclasses import dataclass
from functools import partialmethod
from typing import Any

import numpy as np

from jq.device.forms.tosa.builder import Builder

DIGIT, WORD = 15, 31  # bits of a digit of a long sum; of each of the two words of 62 bits


@dataclass(frozen=True)
class Int32:
    """A tensor by its name in a file; beside it, an integer is a constant."""

    b: Builder
    name: str

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.b.made[self.name][0])

    def of(self, kind: str, *others: "Int32 | int", dtype: str = "int32", **given: Any) -> "Int32":
        """An operator on this one and others, which broadcast."""
        ones, names = [1] * len(self.shape), [self.name]
        for o in others:
            names.append(o.name if isinstance(o, Int32) else self.b.constant([o], "int32", ones))
        shape = np.broadcast_shapes(*(tuple(self.b.made[name][0]) for name in names))
        names += given.pop("more", ())
        return Int32(self.b, self.b.op(kind, names, (shape, dtype), **given))

    def full(self, value: int) -> "Int32":
        """A constant of this one's shape."""
        return Int32(self.b, self.b.constant(np.full(self.shape, value), "int32"))

    def __add__(self, other: "Int32 | int") -> "Int32":
        return self if isinstance(other, int) and not other else self.of("ADD", other)

    def __lshift__(self, bits: "Int32 | int") -> "Int32":
        return self.of("LOGICAL_LEFT_SHIFT", bits) if bits else self

    def __rshift__(self, bits: int) -> "Int32":
        return self.of("ARITHMETIC_RIGHT_SHIFT", bits, round=False) if bits else self

    __sub__, __and__ = partialmethod(of, "SUB"), partialmethod(of, "BITWISE_AND")
    __ge__ = partialmethod(of, "GREATER_EQUAL", dtype="bool")
    choose = partialmethod(of, "SELECT")  # `a` where this is true, else `b`

    def times(self, other: "Int32 | int", shift: int = 0) -> "Int32":
        """`(self * other + 2^(shift - 1)) >> shift`, whose product may have 64 bits."""
        return self.of("MUL", other, more=[self.b.constant([shift], "int8", [1])])

    def along(self, kind: str, axis: int, **given: Any) -> "Int32":
        """REDUCE_SUM and its like, the axis kept."""
        shape = tuple(1 if a == axis else n for a, n in enumerate(self.shape))
        return Int32(self.b, self.b.op(kind, [self.name], (shape, "int32"), axis=axis, **given))


def squares(x: Int32, bits: int, axis: int, more: int) -> tuple[Int32, Int32]:
    """The sum of squares along an axis of `0 <= x < 2^bits`, plus a constant, below 2^62: its high
    and low 31 bits. Sums of products of parts of x stay in 32 bits, and become digits."""
    part = (WORD - math.ceil(math.log2(max(x.shape[axis], 2)))) // 2
    count = -(-bits // part)
    parts = [(x >> (i * part)) & ((1 << part) - 1) for i in range(count)]
    found: list[Any] = [more >> (DIGIT * i) & ((1 << DIGIT) - 1) for i in range(5)]
    for i in range(count):
        for j in range(i, count):
            total = parts[i].times(parts[j]).along("REDUCE_SUM", axis)
            at, by = divmod((i + j) * part + (j > i), DIGIT)
            low = (total & ((1 << (DIGIT - by)) - 1)) << by
            rest = total >> (DIGIT - by)
            found[at] = low + found[at]
            for k in range(at + 1, min(at + 3, 5)):
                found[k] = (rest & ((1 << DIGIT) - 1)) + found[k]
                rest = rest >> DIGIT
    for i in range(4):
        found[i + 1] = (found[i] >> DIGIT) + found[i + 1]
        found[i] = found[i] & ((1 << DIGIT) - 1)
    d0, d1, d2, d3, d4 = found
    return (d2 >> 1) + (d3 << 14) + (d4 << 29), ((d2 & 1) << 30) + (d1 << DIGIT) + d0


def normalized(high: Int32, low: Int32) -> tuple[Int32, Int32, Int32]:
    """A number of 62 bits shifted left by 2 half, into [2^60, 2^62): both words, and half."""
    half: Any = None
    for s in (15, 8, 4, 2, 1):
        large = high >= 1 << (WORD - 2 * s)
        kept = (low & ((1 << (WORD - 2 * s)) - 1)) << (2 * s)
        high = large.choose(high, (high << (2 * s)) + (low >> (WORD - 2 * s)))
        low, by = large.choose(low, kept), large.choose(0, s)
        half = by if half is None else half + by
    return high, low, half


def root(high: Int32, low: Int32) -> Int32:
    """`floor(sqrt(x))` of x in [2^60, 2^62), two bits after two bits."""
    found: Any = None
    rest: Any = None
    for i in range(WORD):
        at = 2 * (WORD - 1 - i)
        pair = (
            (high >> (at - WORD)) & 3
            if at >= WORD
            else ((high & 1) << 1) + (low >> (WORD - 1))
            if at == WORD - 1
            else (low >> at) & 3
        )
        if found is None:
            found, rest = (pair >= 1).choose(1, 0), pair - (pair >= 1).choose(1, 0)
            continue
        over = rest - found
        if i == WORD - 1:  # 4 over would not fit
            fits = over + (pair >= 1).choose(1, 0) >= 1
        else:
            less = (over << 2) + (pair - 1)
            fits = less >= 0
            rest = fits.choose(less, (rest << 2) + pair)
        found = found + found + fits.choose(1, 0)
    return found


def inverse(total: Int32, k: int) -> Int32:
    """`floor(2^(k + 31) / total)` of total in (2^k, 2^31), bit by bit; 2^31 - 1 of 2^k."""
    quotient, rest = total.full(0), total.full(1 << k)
    for _ in range(WORD):
        lack = total - rest  # 2 rest >= total, without 2 rest
        fits = rest >= lack
        rest = fits.choose(rest - lack, rest << 1)
        quotient = quotient + quotient + fits.choose(1, 0)
    return quotient


def looked_up(values: np.ndarray, index: Int32, dtype: str = "int32") -> Int32:
    """The elements of a table at indices of any shape."""
    b, count = index.b, math.prod(index.shape)
    flat = b.op("RESHAPE", [index.name, b.shape([1, count])], ([1, count], "int32"))
    rows = b.constant(values, dtype, [1, values.size, 1])
    found = b.op("GATHER", [rows, flat], ([1, count, 1], dtype))
    return Int32(b, b.op("RESHAPE", [found, b.shape(index.shape)], (index.shape, dtype)))
