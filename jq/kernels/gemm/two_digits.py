"""Products of 16-bit codes as two bytes."""

from typing import ClassVar

from jq.base.errors import InternalError
from jq.kernels.gemm.product import Product
from jq.kernels.tensor import Array


class TwoDigits(Product, shared=True):
    """A product of 16-bit codes: in place of `codes` stand the upper and the lower bytes of
    code + 2^15, both multiplied by the same weights. Between them sums are multiplied by 256, and
    with them what they start from. Sums have 32 bits: who makes one proves that they fit.

    An instruction that reads its left operand as unsigned takes the bytes as they are."""

    code_operands: ClassVar[int] = 2

    def starts(
        self, weight: Array, bias: Array | None, zero_point: int, column_zero: Array | None = None
    ) -> dict[str, Array]:
        as_stored = self.unsigned and self.target.dot.lhs_unsigned and not self.on_tiles
        plain = bias is None and column_zero is None and not (zero_point or self.row_zero)
        if not as_stored or not plain:
            raise InternalError(f"two digits have no bias and no zero points: {self.label}")
        return super().starts(weight, None, 0)
