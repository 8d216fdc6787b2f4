"""Int32 sums to codes without floats, as integer-only devices rescale."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jq.formats import NUMPY
from jq.formats.requantize import Rescaling, Rounding
from jq.kernels.epilogue.steps import COLUMN, SCALAR, Accesses, ToCodes
from jq.kernels.tensor import Array


@dataclass(frozen=True)
class Rescale(ToCodes):
    """`saturate(rescale(y) + zero_point)` of int32 sums, as `jq.formats.requantize` defines it.
    Operands: mantissas, left shifts if `left`, right shifts of at most 31, the zero point."""

    kind: ClassVar[str] = "rescale"
    source: ClassVar[str] = "i32"
    packs: ClassVar[bool] = False
    long: ClassVar[bool] = True
    rounding: Rounding = "double"
    left: bool = False

    @property
    def operands(self) -> Accesses:
        return ((COLUMN, "i32"),) * (2 + self.left) + ((SCALAR, "i32"),)

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        mantissa, *shifts, zero = (np.broadcast_to(x, y.shape) for x in operands)
        left = shifts[0] if self.left else None
        steps = Rescaling(self.rounding).rescale(NUMPY, y, mantissa, (left, shifts[-1]))
        return self.stored(steps.astype(np.int64) + zero)


@dataclass(frozen=True)
class WideRescale(Rescale):
    """`Rescale` to codes of 16 bits."""

    kind: ClassVar[str] = "wide_rescale"
    result: ClassVar[str] = "i16"
    bits: ClassVar[int] = 16
