"""Steps on a few rows, one after the other, in one dispatch.

    for block of rows in workgroups:
      for row in block:
        for step: another row, in the first cache, or codes of the row     -> stored where read

A token that is decoded is a single row: each of these steps takes less time than a dispatch of its
own. The bits are those of `Normalize`, of a sum, of `QuantizeRows` and of `SplitRows` one after
the other.
"""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

from jq.base.errors import InternalError
from jq.kernels.kernel import Kernel
from jq.kernels.machine.workgroups import row_block
from jq.kernels.rowwise.quantization import RowQuantization
from jq.kernels.rowwise.split_rows import STEPS
from jq.kernels.tensor import TensorType


@dataclass(frozen=True)
class Normalized:
    """The row becomes what `Normalize` makes of it; its operands are gamma and beta. `keep`: that
    is a result."""

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
class Rotated:
    """The halves of the row are turned: `a cos - b sin`, `b cos + a sin` (rotary positions), each
    product and sum rounded. Operands are cosines and sines f32 [lines, K / 2]; `rows` rows take the
    same line."""

    kind: ClassVar[str] = "rotated"

    lines: int
    rows: int
    keep: bool = False


@dataclass(frozen=True)
class Updated:
    """All M rows together become row `first` of an operand f32 [rows, M * K], which is a result,
    in its place; `first` i32 [1] is the operand after it, held to 0 .. rows - 1."""

    kind: ClassVar[str] = "updated"

    rows: int


@dataclass(frozen=True)
class Coded:
    """Codes i8 [M, K] of the row and what the scheme has of each block, [M, blocks], are results.
    Blocks are whole."""

    kind: ClassVar[str] = "coded"

    block: int
    scheme: RowQuantization = field(default_factory=RowQuantization)


@dataclass(frozen=True)
class Digits:
    """Digits i8 [M, digits, K] of the row and scales f32 [M, blocks] are results."""

    kind: ClassVar[str] = "digits"

    block: int
    digits: int


RowStep = Normalized | Added | Rotated | Updated | Coded | Digits


@dataclass(frozen=True, kw_only=True)
class RowChain(Kernel):
    """f32 [M, K], what the steps take -> what the steps give, in their order."""

    family: ClassVar[str] = "row_chain"

    m: int
    k: int
    steps: tuple[RowStep, ...]

    def __post_init__(self) -> None:
        if min(self.m, self.k) < 1:
            raise InternalError(f"empty matrix {self.label}")
        kinds = [type(step) for step in self.steps if isinstance(step, Normalized | Added)]
        if any(a is b is Normalized for a, b in pairwise(kinds)):
            raise InternalError("a normalized row is not normalized again")
        for step in self.steps:
            if isinstance(step, Coded) and (not step.scheme.dynamic or self.k % step.block):
                raise InternalError(f"codes of {self.label} are of whole blocks, found at run time")
            if isinstance(step, Rotated) and (self.k % 2 or self.m % step.rows):
                raise InternalError(f"rows of {self.label} have no halves, or too few rows")
            if isinstance(step, Updated) and row_block(self.m, self.k) < self.m:
                raise InternalError(f"rows of {self.label} are not written together")
            if isinstance(step, Digits) and step.digits not in STEPS:
                raise InternalError(f"numbers are not split into {step.digits} digits")

    @property
    def label(self) -> str:
        return f"{self.m}x{self.k}"

    @property
    def whole(self) -> TensorType:
        return TensorType((self.m, self.k), "f32")

    @property
    def operands(self) -> tuple[TensorType, ...]:
        return (self.whole, *(kind for step in self.steps for kind in self.taken(step)))

    @property
    def results(self) -> tuple[TensorType, ...]:
        return tuple(kind for step in self.steps for kind in self.given(step))

    def taken(self, step: RowStep) -> list[TensorType]:
        """The operands of a step besides the row."""
        if isinstance(step, Normalized):
            return [TensorType((self.k,), "f32")] * (step.gamma + step.beta)
        if isinstance(step, Rotated):
            return [TensorType((step.lines, self.k // 2), "f32")] * 2
        if isinstance(step, Updated):
            return [*self.given(step), TensorType((1,), "i32")]
        return [self.whole] if isinstance(step, Added) else []

    def given(self, step: RowStep) -> list[TensorType]:
        """The results of a step."""
        if isinstance(step, Normalized | Added | Rotated):
            return [self.whole] * step.keep
        if isinstance(step, Updated):
            return [TensorType((step.rows, self.m * self.k), "f32")]
        blocks = math.ceil(self.k / step.block)
        if isinstance(step, Digits):
            digits = TensorType((self.m, step.digits, self.k), "i8")
            return [digits, TensorType((self.m, blocks), "f32")]
        codes, *numbers = step.scheme.results(self.m, self.k)
        return [codes, *(TensorType((self.m, blocks), kind.element) for kind in numbers)]
