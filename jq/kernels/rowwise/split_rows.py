"""Rows of floats as several int8 digits: what integer products need to give what float ones give.

    for block of rows in workgroups:
      for row in block:
        for block of columns:           # that share a scale
          largest magnitude; scale = largest / steps, inverse (a division each)
          q = round_half_even(x * inverse)                        # |q| <= steps
          digit[0], digit[1], ... with q = sum_d 256^(digits - 1 - d) digit[d]

`steps` is 2^14 - 1 with two digits: the codes of int16 with the divisor `absmax/63`. With three it
is 63 * 256^2, and a number is off by at most 2^-22.9 of the largest of its block, where float32
itself has 2^-24 of the number. A block that holds an infinity
or NaN has a scale that makes every product NaN; one whose scale would be below 2^-126 counts as
zeros.
About 4 operations an element for the range and 5 a digit; the rows of a few tokens.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from jq.base.errors import InternalError
from jq.kernels.kernel import Kernel
from jq.kernels.tensor import TensorType

# On either side of zero, by digits; 63 * 2^16 is below 2^22, to where floats round by adding.
STEPS = {2: (1 << 14) - 1, 3: 63 << 16}


@dataclass(frozen=True, kw_only=True)
class SplitRows(Kernel):
    """f32 [M, K] -> i8 [M, digits, K], the highest digit first; f32 scale [M, ceil(K / block)]."""

    family: ClassVar[str] = "split_rows"

    m: int
    k: int
    block: int = 32
    digits: int = 3

    def __post_init__(self) -> None:
        if min(self.m, self.k, self.block) < 1:
            raise InternalError(f"empty matrix {self.label}")
        if self.digits not in STEPS:
            raise InternalError(f"numbers are split into 2 or 3 digits, not {self.digits}")

    @property
    def label(self) -> str:
        return f"{self.m}x{self.k}_block{self.block}"

    @property
    def blocks(self) -> int:
        return math.ceil(self.k / self.block)

    @property
    def steps(self) -> int:
        """The number of steps of a scale between 0 and the largest magnitude."""
        return STEPS[self.digits]

    @property
    def operands(self) -> tuple[TensorType, ...]:
        return (TensorType((self.m, self.k), "f32"),)

    @property
    def results(self) -> tuple[TensorType, ...]:
        return (
            TensorType((self.m, self.digits, self.k), "i8"),
            TensorType((self.m, self.blocks), "f32"),
        )

    def reference(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same in NumPy, for finite numbers whose scales are no smaller than 2^-126."""
        pad = self.blocks * self.block - self.k
        blocks = np.pad(x, ((0, 0), (0, pad))).reshape(self.m, self.blocks, self.block)
        largest = np.abs(blocks).max(2)
        extent, steps = np.where(largest == 0, 1, largest).astype("f4"), np.float32(self.steps)
        inverse = np.where(largest == 0, np.float32(1), steps / extent)
        scale = np.where(largest == 0, np.float32(1), extent / steps)
        q = np.rint(blocks * inverse[..., None]).reshape(self.m, -1)[:, : self.k].astype(np.int64)
        digits = []
        for _ in range(self.digits):
            digits.append((q + 128) % 256 - 128)
            q = (q + 128) >> 8
        return np.stack(digits[::-1], 1).astype(np.int8), scale
