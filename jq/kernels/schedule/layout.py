"""Places of a result's rows: those of batches, and of sequences, of which the last are left out."""

from dataclasses import dataclass
from typing import ClassVar

from jq.base.errors import InternalError
from jq.kernels.tensor import TensorType


@dataclass(frozen=True)
class Batch:
    """`count` products: every operand and result has a leading axis, scalars and vectors too."""

    kind: ClassVar[str] = "batch"
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InternalError("a batch of no products")


@dataclass(frozen=True)
class Sequences:
    """Rows lie in sequences of `length`, and only the first ones of each are wanted: as many as the
    kernel's last operand says, i32 [M / length]. What a kernel gives for the others is undefined;
    with `fill` it is 0 (but for numbers that a row has one of: its scale, its zero point)."""

    kind: ClassVar[str] = "sequences"

    length: int
    fill: bool = False

    def operand(self, rows: int) -> TensorType:
        """The type of the counts for so many rows."""
        if rows % self.length:
            raise InternalError(f"{rows} rows are no sequences of {self.length}")
        return TensorType((rows // self.length,), "i32")
