"""Starts of the accumulators of integer products."""

from iree.compiler import ir

from jq.kernels.emit.values import Index, Values
from jq.kernels.epilogue.emission import Epilogue
from jq.kernels.gemm.product import IntegerProduct


def split_corrections(gemm: IntegerProduct, tensors: Values) -> tuple[Values, Values]:
    """The operands after `init`: of the corrections, and of the epilogue."""
    count = 2 * gemm.row_zero + gemm.column_zero
    return tensors[:count], tensors[count:]


class Start:
    """The start (or end) of accumulators: everything but the products.

        init[n] - row_zero[m] * colsum[n] - sum_k codes[m, k] * column_zero[n]

    The last term also takes out an offset of the weights, which is the same for every column.
    """

    def __init__(
        self, gemm: IntegerProduct, epilogue: Epilogue, init: Values, corrections: Values
    ) -> None:
        self.gemm, self.epilogue, self.b = gemm, epilogue, epilogue.b
        self.init = list(init)
        rest = list(corrections)
        if gemm.row_zero:
            self.row_zero = rest.pop(0)
            self.colsum = epilogue.by_column(rest.pop(0), "i32")
        if gemm.column_zero:
            self.column_zero = epilogue.by_column(rest.pop(0), "i32")
        elif gemm.weight_offset:
            offset = self.b.i32(gemm.weight_offset, epilogue.lanes)
            self.column_zero = [offset] * len(self.init)

    @property
    def needs_sums(self) -> bool:
        return self.gemm.column_zero or bool(self.gemm.weight_offset)

    def of(self, row: Index, total: ir.Value | None) -> list[ir.Value]:
        """The panel's vectors for a row whose codes sum to `total`."""
        b, start = self.b, self.init
        if self.gemm.row_zero:
            zero = self.epilogue.scalar(self.row_zero, [row], "i32")
            start = [b.sub(v, b.mul(zero, c)) for v, c in zip(start, self.colsum, strict=True)]
        if total is not None:
            start = [
                b.sub(v, b.mul(total, c)) for v, c in zip(start, self.column_zero, strict=True)
            ]
        return start
