"""Element types: what a scaled format stores for every value, beside the scale."""

from dataclasses import dataclass
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from jq.formats.arrays import Array, ArrayOps, clip
from jq.formats.minifloat import Minifloat

F32 = np.float32


class Element(Protocol):
    """Codes in int8, of which the low `bits` are used; `mantissa` bits of them are fraction."""

    @property
    def bits(self) -> int: ...
    @property
    def mantissa(self) -> int: ...
    @property
    def largest(self) -> float: ...
    @property
    def element_type(self) -> np.dtype[Any] | None:
        """The type of a single number, where it has one that is not int8."""

    def encode(self, x: np.ndarray, rounding: str) -> np.ndarray:
        """Codes of finite float32 values, saturated; ties to `even`, or away (`nearest`)."""

    def decode(self, ops: ArrayOps, codes: Array) -> Array:
        """Float32 values of codes."""

    def of_elements(self, ops: ArrayOps, x: Array) -> Array:
        """Float32 values of numbers of `element_type`; of codes where there is none."""


class Computed(Element, Protocol):
    """An element that a program can encode."""

    def nearest(self, ops: ArrayOps, x: Array) -> Array:
        """The number of this type nearest to each f32, as f32: `decode(encode(x, "even"))`."""

    def codes(self, ops: ArrayOps, x: Array) -> Array:
        """Their codes, i8: `encode(x, "even")` but for NaN."""

    @property
    def unit(self) -> float:
        """A power of two that every number is a multiple of."""

    def multiples(self, ops: ArrayOps, codes: Array) -> Array:
        """The numbers as multiples of `unit`, i8, where they fit (`whole`)."""


def whole(element: Element) -> Computed | None:
    """The element, if its numbers are multiples of one in int8."""
    integers = computed(element)
    return integers if integers and integers.largest <= 127 * integers.unit else None


def computed(element: Element) -> Computed | None:
    """The element, if a program can encode it."""
    return element if isinstance(element, FixedPoint | Minifloat) else None


@dataclass(frozen=True)
class FixedPoint:
    """Signed 8-bit numbers with `mantissa` bits after the point, in [-largest, largest]."""

    mantissa: int
    bits = 8
    element_type = None

    @property
    def largest(self) -> float:
        return 127 / 2.0**self.mantissa

    def encode(self, x: np.ndarray, rounding: str) -> np.ndarray:
        x = x * F32(2.0**self.mantissa)
        if rounding == "even":
            np.rint(x, out=x)
        else:
            down = np.floor(np.abs(x))
            x = np.copysign(down + (np.abs(x) - down >= 0.5), x)
        return np.clip(x, -127, 127, out=x).astype(np.int8)

    @property
    def unit(self) -> float:
        return float(2.0**-self.mantissa)

    def nearest(self, ops: ArrayOps, x: Array) -> Array:
        return ops.mul(self._steps(ops, x), self.unit)

    def codes(self, ops: ArrayOps, x: Array) -> Array:
        return ops.convert(self._steps(ops, x), np.int8)

    def _steps(self, ops: ArrayOps, x: Array) -> Array:
        return clip(ops, ops.round_even(ops.mul(x, 2.0**self.mantissa)), -127, 127)

    def multiples(self, ops: ArrayOps, codes: Array) -> Array:
        return codes

    def decode(self, ops: ArrayOps, codes: Array) -> Array:
        return ops.mul(ops.convert(codes, F32), self.unit)

    of_elements = decode


@dataclass(frozen=True)
class Table:
    """The nearest of 2^bits ascending numbers, the lower one of two as near."""

    values: tuple[float, ...]
    mantissa: int = 0

    @property
    def bits(self) -> int:
        return (len(self.values) - 1).bit_length()

    @property
    def element_type(self) -> np.dtype[Any] | None:
        """The type of the index."""
        return np.dtype(ml_dtypes.uint4) if self.bits == 4 else None

    @property
    def largest(self) -> float:
        return max(abs(v) for v in self.values)

    def encode(self, x: np.ndarray, rounding: str) -> np.ndarray:
        table = np.asarray(self.values, F32)
        between = (table[1:] + table[:-1]) / F32(2)
        codes = np.zeros(x.shape, np.int8)
        for middle in between:
            codes += x > middle
        return codes

    def decode(self, ops: ArrayOps, codes: Array) -> Array:
        return ops.take(np.asarray(self.values, F32), codes)

    def of_elements(self, ops: ArrayOps, x: Array) -> Array:
        return self.decode(ops, ops.convert(x, np.int8))
