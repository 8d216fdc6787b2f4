"""Common base of products of windows by panels of filters: runs of codes, and groups."""

from dataclasses import dataclass

import numpy as np

from jq.base.errors import InternalError
from jq.kernels.convolution.windowed import Windowed
from jq.kernels.epilogue.steps import check
from jq.kernels.gemm.product import PanelProduct
from jq.kernels.schedule.frame import Frame
from jq.kernels.tensor import Array, TensorType


@dataclass(frozen=True, kw_only=True)
class WindowPanels(Windowed, PanelProduct):
    """i8 [B, H, W * C], padded already, -> [B * Ho * Wo, F], in f32, i8 or i32.

    Attributes:
        groups: filters and channels in groups (a depthwise convolution: `Depthwise`).
        frame: what stands around the images of the result, for the convolution that reads them.
    """

    filters: int
    groups: int = 1
    frame: Frame | None = None

    def __post_init__(self) -> None:
        check(self.epilogue)
        self.check_views()
        if self.channels % self.groups or self.filters % self.groups:
            raise InternalError(f"{self.groups} groups do not divide {self.label}")
        if min(self.batch, self.channels, self.filters, *self.output, *self.strides) < 1:
            raise InternalError(f"empty convolution {self.label}")

    @property
    def label(self) -> str:
        return f"{self.image}_{self.filters}x{'x'.join(map(str, self.window))}"

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """HWIO."""
        return (*self.window, self.channels // self.groups, self.filters)

    @property
    def together(self) -> bool:
        """A row of taps is one run of codes."""
        return self.dilations[1] == 1 and self.groups == 1

    @property
    def run(self) -> int:
        """Codes of a run."""
        channels = self.channels // self.groups
        return channels * self.window[1] if self.together else channels

    @property
    def runs(self) -> tuple[int, int]:
        """Runs along H and W of the window."""
        return self.window[0], (1 if self.together else self.window[1])

    @property
    def span(self) -> int:
        """Filters of a group."""
        return self.filters // self.groups

    @property
    def columns(self) -> int:
        """F': the last group may be narrower than a vector."""
        return self.filters + max(0, self.target.lanes - self.span)

    @property
    def codes(self) -> TensorType:
        """The image that is read."""
        return TensorType((self.batch, self.height, self.width * self.channels), "i8")

    # Reference

    def _products(self, x: Array, weight: Array) -> Array:
        sides = zip(np.split(x, self.groups, -1), np.split(weight, self.groups, -1), strict=True)
        return np.concatenate([a @ b for a, b in sides], -1)
