"""Steps on a few rows, one after the other, in one dispatch.

    for block of rows in workgroups:
      for row in block:
        for step: another row, in the first cache, or codes of the row     -> stored where read

A decoded token is a single row: each step takes less time than its dispatch. The bits are those of
`Normalize`, of a sum, of `QuantizeRows` and of `SplitRows` one after the other."""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

from jq.base.errors import InternalError
from jq.kernels.rowwise.description import RowQuantization, Rows
from jq.kernels.tensor import TensorType

# Rows of floats as several int8 digits: what integer products need to give what float ones give.
#
#     for block of rows in workgroups:
#       for row in block:
#         for block of columns:           # that share a scale
#           largest magnitude; scale = largest / steps, inverse (a division each)
#           q = round_half_even(x * inverse)                        # |q| <= steps
#           digit[0], digit[1], ... with q = sum_d 256^(digits - 1 - d) digit[d]
#
# `steps` is 2^14 - 1 with two digits: the codes of int16 with the divisor `absmax/63`. With three
# it is 63 * 256^2, and a number is off by at most 2^-22.9 of the largest of its block, where
# float32 itself has 2^-24 of the number. A block that holds an infinity or NaN has a scale that
# makes every product NaN; one whose scale would be below 2^-126 counts as zeros. About 4 operations
# an element for the range and 5 a digit; the rows of a few tokens.

# On either side of zero, by digits; 63 * 2^16 is below 2^22, to where floats round by adding.
STEPS = {2: (1 << 14) - 1, 3: 63 << 16}


class SplitRows(Rows):
    """f32 [M, K] -> i8 [M, digits, K], the highest digit first; f32 scale [M, ceil(K / block)]."""

    block: int = 32
    digits: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block < 1:
            raise InternalError(f"empty blocks of {self.label}")
        if self.digits not in STEPS:
            raise InternalError(f"numbers are split into 2 or 3 digits, not {self.digits}")

    @property
    def label(self) -> str:
        return f"{super().label}_block{self.block}"

    @property
    def blocks(self) -> int:
        return math.ceil(self.k / self.block)

    @property
    def steps(self) -> int:
        """The number of steps of a scale between 0 and the largest magnitude."""
        return STEPS[self.digits]

    @property
    def results(self) -> tuple[TensorType, ...]:
        return (
            TensorType((self.m, self.digits, self.k), "i8"),
            TensorType((self.m, self.blocks), "f32"),
        )


@dataclass(frozen=True)
class Normalized:
    """The row as `Normalize` makes it; operands are gamma and beta. `keep`: that is a result."""

    kind: ClassVar[str] = "normalized"

    epsilon: float = 1e-5
    center: bool = True
    gamma: bool = True
    beta: bool = True
    keep: bool = False


@dataclass(frozen=True)
class Added:
    """The row becomes its sum with the row of an operand f32 [M, K]."""

    kind: ClassVar[str] = "added"

    keep: bool = False


@dataclass(frozen=True)
class Coded:
    """Results: codes i8 [M, K], and what the scheme has of each block [M, blocks], all whole."""

    kind: ClassVar[str] = "coded"

    block: int
    scheme: RowQuantization = field(default_factory=RowQuantization)


@dataclass(frozen=True)
class Digits:
    """Digits i8 [M, digits, K] of the row and scales f32 [M, blocks] are results."""

    kind: ClassVar[str] = "digits"

    block: int
    digits: int


RowStep = Normalized | Added | Coded | Digits


class RowChain(Rows):
    """f32 [M, K], what the steps take -> what the steps give, in their order."""

    steps: tuple[RowStep, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = [type(step) for step in self.steps if isinstance(step, Normalized | Added)]
        if any(a is b is Normalized for a, b in pairwise(kinds)):
            raise InternalError("a normalized row is not normalized again")
        for step in self.steps:
            if isinstance(step, Coded) and (not step.scheme.dynamic or self.k % step.block):
                raise InternalError(f"codes of {self.label} are of whole blocks, found at run time")
            if isinstance(step, Digits) and step.digits not in STEPS:
                raise InternalError(f"numbers are not split into {step.digits} digits")

    @property
    def operands(self) -> tuple[TensorType, ...]:
        return (self.matrix, *(kind for step in self.steps for kind in self.taken(step)))

    @property
    def results(self) -> tuple[TensorType, ...]:
        return tuple(kind for step in self.steps for kind in self.given(step))

    def taken(self, step: RowStep) -> list[TensorType]:
        """The operands of a step besides the row."""
        if isinstance(step, Normalized):
            return [TensorType((self.k,), "f32")] * (step.gamma + step.beta)
        return [self.matrix] if isinstance(step, Added) else []

    def given(self, step: RowStep) -> list[TensorType]:
        """The results of a step."""
        if isinstance(step, Normalized | Added):
            return [self.matrix] * step.keep
        blocks = math.ceil(self.k / step.block)
        if isinstance(step, Digits):
            digits = TensorType((self.m, step.digits, self.k), "i8")
            return [digits, TensorType((self.m, blocks), "f32")]
        codes, *numbers = step.scheme.results(self.m, self.k)
        return [codes, *(TensorType((self.m, blocks), kind.element) for kind in numbers)]
