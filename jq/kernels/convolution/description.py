"""Convolution as a product: pixels x (taps x channels) x filters, without an im2col tensor.

    for panel of filters, block of pixels in workgroups:
      for tile of pixels:                      # any pixels: a tile may span rows and samples
        acc[pixels][vectors] = init
        for run of codes that lie together:    # a row of taps, or one tap if dilated or grouped
          for k in 0 .. run/group:             # as in `Gemm`
        epilogue, store

On matrix tiles the codes of 16 pixels are first gathered into tiles (`gemm.amx`).
2 * pixels * filters * taps * channels / groups operations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from jq.errors import InternalError
from jq.kernels.convolution.windowed import Windowed
from jq.kernels.epilogue.steps import check
from jq.kernels.gemm.product import PanelProduct
from jq.kernels.machine.tile_cut import DEPTH, TiledCut, pack_weight
from jq.kernels.machine.tiling import Tiling, choose
from jq.kernels.schedule.frame import Frame
from jq.kernels.tensor import Array, TensorType, cut_last

TILED_PIXELS = 8


@dataclass(frozen=True, kw_only=True)
class Convolution(Windowed, PanelProduct):
    """i8 [B, H, W * C], padded already, -> [B * Ho * Wo, F], in f32, i8 or i32.

    Operands, in order:
        codes: padded with their zero point (in the view they are stored in).
        weights, init: what `pack` made.
        row_zero: i32 [B], and colsum i32 [F'], if `row_zero`.
        column_zero: i32 [F'] (`pack`), if `column_zero`.
        what the epilogue's steps name: by column [F'] (`pad_columns`), by row [B], by element
        [B * Ho * Wo, F].

    Attributes:
        column_zero: filters have zero points.
        groups: filters and channels in groups (a depthwise convolution: `Depthwise`).
        frame: what stands around the images of the result, for the convolution that reads them.
    """

    family: ClassVar[str] = "convolution"

    column_zero: bool = False
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
        if self.frame and self.on_tiles:
            raise InternalError(f"no frame around {self.label}")

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
    def run_groups(self) -> int:
        return math.ceil(self.run / self.target.dot.group)

    @property
    def room(self) -> bool:
        """A run may be read in whole groups: what lies after it meets weights of 0."""
        wide, per = self.output[1], self.channels // self.groups
        last = (wide - 1) * self.strides[1] + (self.runs[1] - 1) * self.dilations[1]
        start = last * self.channels + (self.groups - 1) * per
        return start + self.run_groups * self.target.dot.group <= self.width * self.channels

    @property
    def span(self) -> int:
        """Filters of a group."""
        return self.filters // self.groups

    @cached_property
    def tiling(self) -> Tiling:
        depth = math.prod(self.runs) * self.run_groups * self.target.dot.group
        return choose(self.target, self.pixels, depth, self.span)

    @property
    def on_tiles(self) -> bool:
        """Where gathering into whole chunks of 64 codes does not add too many."""
        depth = math.prod(self.runs) * self.run
        padded = math.prod(self.runs) * self.run_chunks * DEPTH
        pays = self.pixels >= TILED_PIXELS and depth >= DEPTH and 3 * depth >= 2 * padded
        return self.target.tiles and self.groups == 1 and pays

    @property
    def run_chunks(self) -> int:
        return math.ceil(self.run / DEPTH)

    @cached_property
    def tiles(self) -> TiledCut:
        return TiledCut(self.pixels, math.prod(self.runs) * self.run_chunks * DEPTH, self.span)

    @property
    def panel(self) -> int:
        """Filters of a panel; fewer than a vector's lanes are not filled up in memory."""
        return min(self.span, self.tiling.vectors * self.target.lanes)

    @property
    def columns(self) -> int:
        """F': the last group may be narrower than a vector."""
        return self.filters + max(0, self.target.lanes - self.span)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        shape = (
            self.groups * self.tiling.panels,
            math.prod(self.runs) * self.run_groups,
            self.panel * self.target.dot.group,
        )
        weights = (
            TensorType(self.tiles.weights_type, "i32") if self.on_tiles else TensorType(shape, "i8")
        )
        init, steps = self.behind()
        codes = TensorType((self.batch, self.height, self.width * self.channels), "i8")
        return (codes, weights, *init, *steps)

    def in_frame(self, frame: Frame) -> Convolution | None:
        return None if self.on_tiles else replace(self, frame=frame)

    # Weights

    def _packed(self, weight: Array) -> Array:
        runs = weight.reshape(math.prod(self.runs), self.run, self.filters)
        return self._tiles(runs) if self.on_tiles else self._panels(runs)

    def _tiles(self, runs: Array) -> Array:
        padded = np.pad(runs, ((0, 0), (0, self.run_chunks * DEPTH - self.run), (0, 0)))
        return pack_weight(self.tiles, padded.reshape(-1, self.filters))

    def _panels(self, runs: Array) -> Array:
        """[runs, run, F] -> [groups * panels, runs * run / group, panel * group]."""
        group, cut, width = self.target.dot.group, self.tiling, self.panel
        padded = np.pad(runs, ((0, 0), (0, self.run_groups * group - self.run), (0, 0)))
        grouped = padded.reshape(-1, group, self.groups, self.span)
        panels = cut_last(grouped, cut.panels, width)
        ordered = np.ascontiguousarray(panels.transpose(3, 0, 1, 4, 2))
        return ordered.reshape(self.groups * cut.panels, -1, width * group)

    # Reference

    def _products(self, x: Array, weight: Array) -> Array:
        sides = zip(np.split(x, self.groups, -1), np.split(weight, self.groups, -1), strict=True)
        return np.concatenate([a @ b for a, b in sides], -1)
