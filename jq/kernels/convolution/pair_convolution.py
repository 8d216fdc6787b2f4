"""Convolutions with 8-bit weights as bytes: the result is that of `Convolution`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from jq.kernels.convolution.window_panels import WindowPanels
from jq.kernels.gemm.pair_product import PairProduct
from jq.kernels.schedule.frame import Frame
from jq.kernels.tensor import TensorType


@dataclass(frozen=True, kw_only=True)
class PairConvolution(WindowPanels, PairProduct):
    """A `PairProduct` of windows.

    Operands: codes, padded with their zero point; what `pack` made: weights, source, plan, init,
    and (`row_zero`) zero points i32 [B] and colsum; what the epilogue's steps name.
    """

    family: ClassVar[str] = "pair_convolution"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_pairs()

    @property
    def operands(self) -> tuple[TensorType, ...]:
        (_, *corrections), steps = self.behind()
        return (self.codes, *self.packed_types, *corrections, *steps)

    def in_frame(self, frame: Frame) -> PairConvolution:
        return replace(self, frame=frame)
