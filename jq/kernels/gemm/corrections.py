"""Corrections of integer products for zero points that are found at run time."""

from __future__ import annotations

from typing import Protocol

from jq.kernels.tensor import TensorType


class Corrected(Protocol):
    """Which corrections a product has."""

    @property
    def row_zero(self) -> bool: ...
    @property
    def column_zero(self) -> bool: ...
    @property
    def weight_offset(self) -> int: ...


def correction_types(
    product: Corrected, rows: tuple[int, ...], columns: int
) -> tuple[TensorType, ...]:
    """The operands of zero points that are found at run time: `row_zero`, and `colsum`."""
    kinds = (TensorType(rows, "i32"), TensorType((columns,), "i32"))
    return kinds if product.row_zero else ()
