"""What bodies read of the description of an integer product, and its corrections."""

from __future__ import annotations

from typing import Protocol

from jq.kernels.epilogue.steps import Step
from jq.kernels.machine.isa import Isa
from jq.kernels.machine.tile_cut import TiledCut
from jq.kernels.machine.tiling import Tiling
from jq.kernels.tensor import TensorType


class Corrected(Protocol):
    """Which corrections a product has."""

    @property
    def row_zero(self) -> bool: ...
    @property
    def column_zero(self) -> bool: ...
    @property
    def weight_offset(self) -> int: ...


class Product(Corrected, Protocol):
    """What the description of a product says, on vectors and on matrix tiles."""

    @property
    def target(self) -> Isa: ...
    @property
    def n(self) -> int: ...
    @property
    def lead(self) -> tuple[int, ...]: ...
    @property
    def tiling(self) -> Tiling: ...
    @property
    def tiles(self) -> TiledCut: ...
    @property
    def unsigned(self) -> bool: ...
    @property
    def epilogue(self) -> tuple[Step, ...]: ...
    @property
    def results(self) -> tuple[TensorType, ...]: ...


def correction_types(
    product: Corrected, rows: tuple[int, ...], columns: int
) -> tuple[TensorType, ...]:
    """The operands of zero points that are found at run time: `row_zero`, and `colsum`."""
    kinds = (TensorType(rows, "i32"), TensorType((columns,), "i32"))
    return kinds if product.row_zero else ()
