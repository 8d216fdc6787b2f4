"""Convolution as a product: pixels x (taps x channels) x filters, without an im2col tensor.

    for panel of filters, block of pixels in workgroups:
      for tile of pixels:                      # any pixels: a tile may span rows and samples
        acc[pixels][vectors] = init
        for run of codes that lie together:    # a row of taps, or one tap if dilated or grouped
          for k in 0 .. run/group:             # as in `Gemm`
        epilogue, store

On matrix tiles the codes of 16 pixels are first gathered into tiles (`tiled_gemm`).
2 * pixels * filters * taps * channels / groups operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from jq.errors import InternalError
from jq.kernels.epilogue.steps import Step, check, operand_types
from jq.kernels.gemm.corrections import correction_types
from jq.kernels.kernel import Kernel
from jq.kernels.machine.tile_cut import DEPTH, TiledCut, pack_weight
from jq.kernels.machine.tiling import Tiling, choose
from jq.kernels.schedule.frame import Frame
from jq.kernels.tensor import TensorType

Array = np.ndarray[Any, np.dtype[Any]]
TILED_PIXELS = 8


@dataclass(frozen=True, kw_only=True)
class Convolution(Kernel):
    """i8 [B, H, W * C], padded already, -> [B * Ho * Wo, F], in f32, i8 or i32.

    Operands, in order:
        codes: padded with their zero point (in the view they are stored in).
        weights, init: what `pack` made.
        row_zero: i32 [B], and colsum i32 [F'], if `row_zero`.
        what the epilogue's steps name: by column [F'] (`pad_columns`), by row [B], by element
        [B * Ho * Wo, F].

    Attributes:
        height, width: of the padded input.
        window, strides, dilations: (H, W).
        groups: filters and channels in groups (a depthwise convolution: `Depthwise`).
        row_zero: samples have zero points that are known at run time.
        unsigned: the codes are stored in their unsigned view.
        frame: what stands around the images of the result, for the convolution that reads them.
    """

    family: ClassVar[str] = "convolution"

    batch: int
    height: int
    width: int
    channels: int
    filters: int
    window: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    dilations: tuple[int, ...] = (1, 1)
    groups: int = 1
    row_zero: bool = False
    unsigned: bool = False
    epilogue: tuple[Step, ...] = ()
    frame: Frame | None = None

    column_zero: ClassVar[bool] = False
    weight_offset: ClassVar[int] = 0
    lead: ClassVar[tuple[int, ...]] = ()

    def __post_init__(self) -> None:
        check(self.epilogue)
        if self.channels % self.groups or self.filters % self.groups:
            raise InternalError(f"{self.groups} groups do not divide {self.label}")
        if min(self.batch, self.channels, self.filters, *self.output, *self.strides) < 1:
            raise InternalError(f"empty convolution {self.label}")
        if self.frame and self.on_tiles:
            raise InternalError(f"no frame around {self.label}")

    @property
    def label(self) -> str:
        window = "x".join(map(str, self.window))
        return f"{self.batch}x{self.height}x{self.width}x{self.channels}_{self.filters}x{window}"

    @property
    def output(self) -> tuple[int, int]:
        """Ho, Wo."""
        spans = [d * (k - 1) + 1 for d, k in zip(self.dilations, self.window, strict=True)]
        high, wide = (
            (size - span) // stride + 1
            for size, span, stride in zip(
                (self.height, self.width), spans, self.strides, strict=True
            )
        )
        return high, wide

    @property
    def pixels(self) -> int:
        return self.batch * self.output[0] * self.output[1]

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
        """A run may be read in whole groups: what lies behind it meets weights of 0."""
        wide, per = self.output[1], self.channels // self.groups
        last = (wide - 1) * self.strides[1] + (self.runs[1] - 1) * self.dilations[1]
        start = last * self.channels + (self.groups - 1) * per
        return start + self.run_groups * self.target.dot.group <= self.width * self.channels

    @property
    def n(self) -> int:
        """Filters of a group."""
        return self.filters // self.groups

    @property
    def operations(self) -> int:
        taps = self.window[0] * self.window[1]
        return 2 * self.pixels * self.filters * taps * self.channels // self.groups

    @cached_property
    def tiling(self) -> Tiling:
        depth = math.prod(self.runs) * self.run_groups * self.target.dot.group
        return choose(self.target, self.pixels, depth, self.n)

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
        return TiledCut(self.pixels, math.prod(self.runs) * self.run_chunks * DEPTH, self.n)

    @property
    def panel(self) -> int:
        """Filters of a panel; fewer than a vector's lanes are not filled up in memory."""
        return min(self.n, self.tiling.vectors * self.target.lanes)

    @property
    def columns(self) -> int:
        """F': the last group may be narrower than a vector."""
        return self.filters + max(0, self.target.lanes - self.n)

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
        result = (self.pixels, self.filters)
        steps = operand_types(self.epilogue, result, self.columns, (self.batch,))
        return (
            TensorType((self.batch, self.height, self.width * self.channels), "i8"),
            weights,
            TensorType((self.columns,), "i32"),
            *correction_types(self, (self.batch,), self.columns),
            *(TensorType(shape, what) for shape, what in steps),
        )

    @property
    def results(self) -> tuple[TensorType, ...]:
        rows = self.frame.rows(self.pixels) if self.frame else self.pixels
        return (TensorType((rows, self.filters), check(self.epilogue)),)

    def in_frame(self, frame: Frame) -> Convolution | None:
        return None if self.on_tiles else replace(self, frame=frame)

    # Weights

    def pack(
        self, weight: Array, bias: Array | None = None, zero_point: int = 0
    ) -> dict[str, Array]:
        """The constant operands (`weights`, `init`, and `colsum` with `row_zero`) of an int8 HWIO
        weight [KH, KW, C / groups, F].

        `bias` is i32 [F], `zero_point` that of the codes (signed) where it is known.
        """
        if weight.shape != (*self.window, self.channels // self.groups, self.filters):
            raise InternalError(f"{weight.shape} is not the weight of {self.label}")
        unsigned = self.unsigned if self.on_tiles else self.target.dot.lhs_unsigned
        shift = zero_point + (128 if unsigned else 0)
        colsum = weight.sum((0, 1, 2), dtype=np.int32)
        init = -np.int32(shift) * colsum
        if bias is not None:
            init = init + bias.astype(np.int32)
        runs = weight.reshape(math.prod(self.runs), self.run, self.filters)
        parts = self._tiles(runs) if self.on_tiles else self._panels(runs)
        constants = {"weights": parts, "init": self.pad_columns(init)}
        return constants | ({"colsum": self.pad_columns(colsum)} if self.row_zero else {})

    def pad_columns(self, values: Array) -> Array:
        """[..., F] -> [..., F']."""
        extra = self.columns - self.filters
        return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, extra)])

    def _tiles(self, runs: Array) -> Array:
        padded = np.pad(runs, ((0, 0), (0, self.run_chunks * DEPTH - self.run), (0, 0)))
        return pack_weight(self.tiles, padded.reshape(-1, self.filters))

    def _panels(self, runs: Array) -> Array:
        """[runs, run, F] -> [groups * panels, runs * run / group, panel * group]."""
        group, cut, width = self.target.dot.group, self.tiling, self.panel
        padded = np.pad(runs, ((0, 0), (0, self.run_groups * group - self.run), (0, 0)))
        grouped = padded.reshape(-1, group, self.groups, self.n)
        starts = [min(p * width, self.n - width) for p in range(cut.panels)]
        panels = np.stack([grouped[..., s : s + width] for s in starts])
        ordered = np.ascontiguousarray(panels.transpose(3, 0, 1, 4, 2))
        return ordered.reshape(self.groups * cut.panels, -1, width * group)

    # Reference

    def reference(
        self,
        codes: Array,
        weight: Array,
        bias: Array | None = None,
        zero_point: int | Array = 0,
        operands: Sequence[Sequence[Array]] = (),
    ) -> Array:
        """The same in NumPy: signed codes [B, H, W, C], HWIO weight; [B * Ho * Wo, F]."""
        (high, wide), per = self.output, self.channels // self.groups
        x = codes.astype(np.int64) - np.reshape(zero_point, (-1, 1, 1, 1))
        acc = np.zeros((self.batch, high, wide, self.filters), np.int64)
        for h in range(self.window[0]):
            for w in range(self.window[1]):
                top, left = h * self.dilations[0], w * self.dilations[1]
                view = x[
                    :,
                    top : top + (high - 1) * self.strides[0] + 1 : self.strides[0],
                    left : left + (wide - 1) * self.strides[1] + 1 : self.strides[1],
                ]
                for g in range(self.groups):
                    to = slice(g * self.n, (g + 1) * self.n)
                    taps = weight[h, w, :, to].astype(np.int64)
                    acc[..., to] += view[..., g * per : (g + 1) * per] @ taps
        y: Array = (acc + (0 if bias is None else bias)).astype(np.int32)
        y = y.reshape(self.pixels, self.filters)
        for step, arrays in zip(self.epilogue, operands, strict=True):
            y = step.reference(y, arrays)
        return self.frame.reference(y) if self.frame else y
