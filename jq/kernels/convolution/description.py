"""Convolution as a product: pixels x (taps x channels) x filters, without an im2col tensor.

    for panel of filters, block of pixels in workgroups:
      for tile of pixels:                      # any pixels: a tile may span rows and samples
        acc[pixels][vectors] = init
        for run of codes that lie together:    # a row of taps, or one tap if dilated or grouped
          for k in 0 .. run/group:             # as in `Gemm`
        epilogue, store

On matrix tiles the codes of 16 pixels are first gathered into tiles (`gemm.amx`). 2 * pixels *
filters * taps * channels / groups operations."""

import math
from functools import cached_property

import numpy as np

from jq.kernels.convolution.windowed import WindowPanels
from jq.kernels.gemm.product import PackedProduct
from jq.kernels.gemm.two_digits import TwoDigits
from jq.kernels.machine.tile_cut import DEPTH, ROWS, TiledCut, pack_weight
from jq.kernels.machine.tiling import Tiling, choose
from jq.kernels.tensor import Array, TensorType, cut_last

TILED_PIXELS = 8


class Convolution(WindowPanels, PackedProduct):
    """A product on vectors or on matrix tiles.

    Operands, in order:
        codes: padded with their zero point (in the view they are stored in); or floats.
        weights, init (not of floats): what `pack` made.
        row_zero: i32 [B], and colsum i32 [F'], if `row_zero`.
        column_zero: i32 [F'] (`pack`), if `column_zero`.
        what the epilogue's steps name: by column [F'] (`pad_columns`), by row [B], by element
        [B * Ho * Wo, F].

    Attributes:
        column_zero: filters have zero points."""

    column_zero: bool = False

    @property
    def run_groups(self) -> int:
        return math.ceil(self.run / self.target.dot.group)

    @property
    def room(self) -> bool:
        """A run may be read in whole groups: what lies after it meets weights of 0, which make 0 of
        every code, but not of infinity."""
        if self.floats:
            return False
        wide, per = self.output[1], self.channels // self.groups
        last = (wide - 1) * self.strides[1] + (self.runs[1] - 1) * self.dilations[1]
        start = last * self.channels + (self.groups - 1) * per
        return start + self.run_groups * self.target.dot.group <= self.width * self.channels

    @cached_property
    def tiling(self) -> Tiling:
        depth = math.prod(self.runs) * self.run_groups * self.target.dot.group
        return choose(self.target, self.pixels, depth, self.span)

    @property
    def on_tiles(self) -> bool:
        """True if whole chunks do not add too many zeros: where tiles are gathered half as many as
        there are codes, twice as many as floats, for which tiles are faster by more."""
        depth = math.prod(self.runs) * self.run
        padded, chunk = math.prod(self.runs) * self.run_chunks * self.chunk, self.chunk
        pays = self.pixels >= TILED_PIXELS and depth >= chunk
        most = 2.0 if self.floats else 3.0 if self._even else 0.5
        return self.target.tiles and self.groups == 1 and pays and padded <= (1 + most) * depth

    @property
    def chunk(self) -> int:
        """Operands along K of a matrix tile."""
        return DEPTH // 2 if self.floats else DEPTH

    @property
    def run_chunks(self) -> int:
        return math.ceil(self.run / self.chunk)

    @property
    def in_place(self) -> bool:
        """True if matrix tiles are read where the image is."""
        return self.on_tiles and self._even

    @property
    def _even(self) -> bool:
        """True if pixels of a line can be cut evenly, into tiles that are more than half full, and
        every chunk is an image's. Pixels that no tap reads would be rounded for nothing."""
        parts, wide = math.ceil(self.output[1] / ROWS), self.output[1]
        even = wide % parts == 0 and wide > ROWS // 2 * parts
        skipped = self.read == "f32" and math.prod(self.strides) > math.prod(self.window)
        # Codes beside a run meet weights of 0, which make 0 of every code, but not of infinity.
        beside = self.run > self.chunk or (
            self.runs[0] > 1 and self.runs[1] == 1 and self.width * self.channels >= self.chunk
        )
        whole = self.run % self.chunk == 0 or (not self.floats and beside)
        return even and whole and not (skipped or self.column_zero)

    @property
    def spare(self) -> int:
        """Operands of a run's last chunk that are not the run's: those in front of it, but those
        behind a run that is shorter than a chunk, unless it is of the last line."""
        return self.run_chunks * self.chunk - self.run

    @cached_property
    def tiles(self) -> TiledCut:
        depth, wide = math.prod(self.runs) * self.run_chunks * self.chunk, self.output[1]
        together = wide // math.ceil(wide / ROWS) if self.in_place else 0
        return TiledCut(self.pixels, depth, self.span, 2 if self.floats else 4, together)

    @property
    def panel(self) -> int:
        """Filters of a panel; fewer than a vector's lanes are not filled up in memory."""
        return min(self.span, self.tiling.vectors * self.target.lanes)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        shape = (
            self.groups * self.tiling.panels,
            math.prod(self.runs) * self.run_groups,
            self.panel * self.target.dot.group,
        )
        weights = (
            TensorType(self.tiles.weights_type, "i32")
            if self.on_tiles
            else TensorType(shape, self.stored)
        )
        init, steps = self.behind()
        return (*[self.codes] * self.code_operands, weights, *init, *steps)

    def _packed(self, weight: Array) -> Array:
        runs = weight.reshape(math.prod(self.runs), self.run, self.filters)
        return self._tiles(runs) if self.on_tiles else self._panels(runs)

    def _tiles(self, runs: Array) -> Array:
        first = (self.run_chunks - 1) * self.chunk  # of the last chunk
        inside = [self.in_place and (first > 0 or i == len(runs) - 1) for i in range(len(runs))]
        ends = [first if before else self.run for before in inside]
        spare = np.zeros((self.spare, self.filters), runs.dtype)
        padded = [np.concatenate([r[:at], spare, r[at:]]) for r, at in zip(runs, ends, strict=True)]
        return pack_weight(self.tiles, np.concatenate(padded))

    def _panels(self, runs: Array) -> Array:
        """[runs, run, F] -> [groups * panels, runs * run / group, panel * group]."""
        group, cut, width = self.target.dot.group, self.tiling, self.panel
        padded = np.pad(runs, ((0, 0), (0, self.run_groups * group - self.run), (0, 0)))
        grouped = padded.reshape(-1, group, self.groups, self.span)
        panels = cut_last(grouped, cut.panels, width)
        ordered = np.ascontiguousarray(panels.transpose(3, 0, 1, 4, 2))
        return ordered.reshape(self.groups * cut.panels, -1, width * group)

    def unpack(self, weights: Array) -> Array:
        """The weight that `pack` took, HWIO; not of matrix tiles."""
        group, cut, width = self.target.dot.group, self.tiling, self.panel
        packed = weights.reshape(self.groups, cut.panels, -1, width, group)
        filters = np.zeros((packed.shape[2], group, self.groups, self.span), packed.dtype)
        for panel in range(cut.panels):
            start = min(panel * width, self.span - width)
            part = packed[:, panel].transpose(1, 3, 0, 2)
            filters[..., start : start + width] = part
        runs = filters.reshape(math.prod(self.runs), -1, self.filters)[:, : self.run]
        return np.ascontiguousarray(runs).reshape(self.weight_shape)


class DigitConvolution(TwoDigits, Convolution):
    """A `Convolution` of 16-bit codes."""
