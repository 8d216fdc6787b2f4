"""Integer products of 8-bit weights as bytes, on processors whose usual product takes 16 bits.

    for block of rows, range of panels in workgroups
      for panel of columns, tile of rows:
        for segment of K:
          stage[rows][k] = codes[rows][source[k]], as 255 - code where it is negated   # shuffles
          for chain that is proven:  acc += widened(codes0 * weights0 + codes1 * weights1)
          for chain by pairs:        acc += widened(codes0 * weights0) + widened(codes1 * weights1)
        epilogue, store

The result is that of `Gemm`. A chain is eight codes of a window, two words of four; `pair_order`
says why nothing saturates. For 32 columns of a chain, a proven one takes 3 multiplications where
16-bit operands take 4, and half the additions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from jq.errors import InternalError
from jq.kernels.epilogue.steps import operand_types
from jq.kernels.gemm.matrix_panels import MatrixPanels
from jq.kernels.gemm.pair_order import CHAIN
from jq.kernels.gemm.pair_weights import STAGE, PairWeights, segment_depth
from jq.kernels.machine import workgroups
from jq.kernels.machine.tile_cut import TiledCut
from jq.kernels.machine.tiling import Tiling
from jq.kernels.schedule.frame import Frame
from jq.kernels.schedule.sequences import Sequences
from jq.kernels.tensor import Array, TensorType, cut_last

NEAR = 1 << 14  # bytes of codes of a block of rows: they stay in the first cache
MIN_PRODUCTS = 1 << 19  # less than these are not worth a workgroup of their own
COUNTS = 2  # of a plan: chains that are proven, chains by pairs; then where each begins


@dataclass(frozen=True, kw_only=True)
class PairGemm(MatrixPanels):
    """A product on vectors of pairs; signed codes.

    Operands: codes i8 [M, K]; what `pack` made: weights, source, plan, init, and (`row_zero`) zero
    points i32 [M] and colsum; what the epilogue's steps name; counts, if the rows are of sequences.

    Attributes:
        chains: of a segment of a panel, at most.
        rows: of `Sequences` some of which are left out, or the pixels of images in a `Frame`.
    """

    family: ClassVar[str] = "pair_gemm"

    chains: int
    rows: Sequences | Frame | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.target.pairs or self.unsigned or self.n < self.target.lanes:
            raise InternalError(f"no pairs of bytes in {self.label}")

    @property
    def panels(self) -> int:
        return math.ceil(self.n / self.target.lanes)

    @property
    def segments(self) -> int:
        return math.ceil(self.k / STAGE)

    @property
    def depth(self) -> int:
        """Codes of a segment, with those that fill the last vector."""
        return segment_depth(self.k, self.target.lanes)

    @cached_property
    def tiling(self) -> Tiling:
        """Tiles of one vector: fewer columns are easier to prove."""
        m = self.length
        most = self.target.registers // 2
        rows = min(range(1, min(most, m) + 1), key=lambda n: (math.ceil(m / n) * (n + 1), -n))
        block = min(m, max(1, NEAR // (rows * self.depth)) * rows)
        blocks = workgroups.parts(1, math.ceil(m / rows))
        block = min(block, math.ceil(m / rows / blocks) * rows)
        return Tiling(rows, 1, self.panels, block, math.ceil(m / block), 0.0)

    @cached_property
    def ranges(self) -> int:
        """Ranges of panels, each a workgroup's. Where the last panel begins ahead of its place,
        there is one.
        """
        if self.n % self.target.lanes:
            return 1
        work = self.m * self.k * self.n // MIN_PRODUCTS
        return workgroups.parts(self.tiling.blocks, max(1, min(self.panels, work)))

    @property
    def range(self) -> int:
        """Panels of a workgroup."""
        return math.ceil(self.panels / self.ranges)

    @property
    def tiles(self) -> TiledCut:
        raise InternalError("pairs of bytes are multiplied in vectors")

    @property
    def operands(self) -> tuple[TensorType, ...]:
        lanes, packed = self.target.lanes, (self.panels, self.segments)
        _, *corrections = self.start_types(self.m)
        return (
            TensorType((self.m, self.k), "i8"),
            TensorType((*packed, self.chains, CHAIN * lanes), "i8"),
            TensorType((*packed, 2, self.depth), "i8"),
            TensorType((*packed, COUNTS + self.chains), "i32"),
            TensorType((self.panels * lanes,), "i32"),
            *corrections,
            *operand_types(self.epilogue, (self.m, self.n), self.columns),
            *self.counts,
        )

    def pack(self, weight: PairWeights, init: Array) -> dict[str, Array]:
        """The constant operands: `weights`, `source`, `plan`, and `init` by panel, of the i32 [N']
        that sums of signed codes start from.
        """
        lanes, shape = self.target.lanes, (self.panels, self.segments)
        weights = np.zeros((*shape, self.chains, CHAIN, lanes), np.int8)
        plan = np.zeros((*shape, COUNTS + self.chains), np.int32)
        for at in np.ndindex(*shape):
            proven, by_pairs, places, values = weight.chains_of(*at)
            plan[at][:COUNTS] = proven, by_pairs
            plan[at][COUNTS : COUNTS + len(places)] = places
            weights[at][: len(values)] = values
        words = weights.reshape(*shape, self.chains, 2, CHAIN // 2, lanes).swapaxes(-1, -2)
        starts = cut_last(init, self.panels, lanes) + weight.correction
        return {
            "weights": np.ascontiguousarray(words).reshape(self.operands[1].shape),
            "source": weight.source.reshape(self.operands[2].shape),
            "plan": plan,
            "init": starts.reshape(-1).astype(np.int32),
        }
