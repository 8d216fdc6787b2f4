"""Common base of integer products of bytes where a processor's usual product takes 16 bits.

    for block of rows, range of panels in workgroups
      for panel of columns, tile of rows:
        for run of codes that lie side by side, segment of a run:
          stage[rows][k] = codes[rows][source[k]], as 255 - code where it is negated   # shuffles
          for chain that is proven:  acc += widened(codes0 * weights0 + codes1 * weights1)
          for chain by pairs:        acc += widened(codes0 * weights0) + widened(codes1 * weights1)
        epilogue, store

A chain is eight codes of a window, two words of four; `pair_order` says why nothing saturates. For
32 columns of a chain, a proven one takes 3 multiplications where 16-bit operands take 4, and half
the additions."""

import math
from abc import abstractmethod
from functools import cached_property

import numpy as np

from jq.base.errors import InternalError
from jq.kernels.epilogue.step import operand_types
from jq.kernels.gemm.pair_order import CHAIN
from jq.kernels.gemm.pair_weights import STAGE, PairWeights, segment_depth
from jq.kernels.gemm.product import MatrixPanels, PanelProduct
from jq.kernels.machine import LINE, TiledCut, Tiling, tiling
from jq.kernels.schedule.layout import Sequences
from jq.kernels.tensor import Array, TensorType, cut_last

NEAR = 1 << 14  # bytes of codes of a block of rows: they stay in the first cache
MIN_PRODUCTS = 1 << 19  # less than these are not worth a workgroup of their own
EVEN = 2 * tiling.CHUNK  # workgroups of which two threads get equal shares
SHARE = 0.5  # of the second cache, for the weights of a range
LINE_PRODUCTS = 300  # that take as long as a line from the second cache
COUNTS = 2  # of a plan: chains that are proven, chains by pairs; then where each begins


class PairProduct(PanelProduct, shared=True):
    """A product on vectors of pairs; signed codes.

    Attributes:
        chains: of a segment of a panel, at most."""

    chains: int

    @property
    @abstractmethod
    def runs(self) -> tuple[int, int]:
        """Runs of codes along two axes."""

    @property
    @abstractmethod
    def run(self) -> int:
        """Codes of a run."""

    @property
    def groups(self) -> int:
        """Groups of columns, each of which reads runs of its own."""
        return 1

    def check_views(self) -> None:
        """Refuses what has no pairs of bytes, as well."""
        super().check_views()
        if not self.target.pairs or self.unsigned or self.span < self.target.lanes:
            raise InternalError(f"no pairs of bytes in {self.label}")

    @property
    def panels(self) -> int:
        """Panels of a group."""
        return math.ceil(self.span / self.target.lanes)

    @property
    def parts(self) -> int:
        """Segments of a run."""
        return math.ceil(self.run / STAGE)

    @property
    def segments(self) -> int:
        return math.prod(self.runs) * self.parts

    @property
    def depth(self) -> int:
        """Codes of a segment, with those that fill the last vector."""
        return segment_depth(self.run, self.target.lanes)

    @cached_property
    def tiling(self) -> Tiling:
        """Tiles of one vector: fewer columns are easier to prove."""
        m = self.length
        most = self.target.registers // 2
        rows = min(range(1, min(most, m) + 1), key=lambda n: (math.ceil(m / n) * (n + 1), -n))
        tiles = math.ceil(m / rows)
        blocks = math.ceil(tiles / max(1, NEAR // (rows * self.depth)))
        blocks = max(tiling.parts(self.groups, tiles), blocks)
        if blocks > EVEN:
            blocks = math.ceil(blocks / EVEN) * EVEN
        block = min(m, math.ceil(tiles / blocks) * rows)
        return Tiling(rows, 1, self.panels, block, math.ceil(m / block), 0.0)

    @cached_property
    def ranges(self) -> int:
        """Ranges of a group's panels, each a workgroup's, and each for all rows before the next
        one: as many as threads need, or as the second cache holds the weights of, but codes and
        lines of results are read once more for each. Where the last panel begins ahead of its
        place, there is one."""
        if self.span % self.target.lanes:
            return 1
        depth, size = math.prod(self.runs) * self.run, self.panels * self._panel_bytes
        products = depth * self.span
        most = min(self.panels, max(1, self.shape[0] * products // MIN_PRODUCTS))
        again = LINE_PRODUCTS * (depth + self.span) / LINE / products
        threads = tiling.parts(self.tiling.blocks * self.groups, most, again)
        return min(
            self.panels, max(threads, math.ceil(size / SHARE / self.target.memory.second_cache))
        )

    @property
    def _panel_bytes(self) -> int:
        """Bytes of a panel's weights and of the order of its codes."""
        return sum(math.prod(t.shape[1:]) for t in self.packed_types[:2])

    @property
    def range(self) -> int:
        """Panels of a workgroup."""
        return math.ceil(self.panels / self.ranges)

    @property
    def tiles(self) -> TiledCut:
        raise InternalError("pairs of bytes are multiplied in vectors")

    @property
    def packed_types(self) -> list[TensorType]:
        """The operands that `pack` makes: weights, source, plan, init."""
        lanes, packed = self.target.lanes, (self.groups * self.panels, self.segments)
        return [
            TensorType((*packed, self.chains, CHAIN * lanes), "i8"),
            TensorType((*packed, 2, self.depth), "i8"),
            TensorType((*packed, COUNTS + self.chains), "i32"),
            TensorType((packed[0] * lanes,), "i32"),
        ]

    def pack(self, weight: PairWeights, init: Array) -> dict[str, Array]:
        """The constant operands: `weights`, `source`, `plan`, and `init` by panel, of the i32 [N']
        that sums of signed codes start from."""
        types, lanes = self.packed_types, self.target.lanes
        shape = types[0].shape[:2]
        weights = np.zeros((*shape, self.chains, CHAIN, lanes), np.int8)
        plan = np.zeros((*shape, COUNTS + self.chains), np.int32)
        for at in np.ndindex(*shape):
            proven, by_pairs, places, values = weight.chains_of(*at)
            plan[at][:COUNTS] = proven, by_pairs
            plan[at][COUNTS : COUNTS + len(places)] = places
            weights[at][: len(values)] = values
        words = weights.reshape(*shape, self.chains, 2, CHAIN // 2, lanes).swapaxes(-1, -2)
        by_group = init[: self.groups * self.span].reshape(self.groups, self.span)
        starts = cut_last(by_group, self.panels, lanes).swapaxes(0, 1).reshape(-1, lanes)
        return {
            "weights": np.ascontiguousarray(words).reshape(types[0].shape),
            "source": weight.source.reshape(types[1].shape),
            "plan": plan,
            "init": (starts + weight.correction).reshape(-1).astype(np.int32),
        }


class PairGemm(MatrixPanels, PairProduct):
    """A `PairProduct` of a matrix.

    Operands: codes i8 [M, K]; what `pack` made: weights, source, plan, init, and (`row_zero`) zero
    points i32 [M] and colsum; what the epilogue's steps name; counts, if the rows are of sequences.

    Attributes:
        rows: of `Sequences` some of which are left out."""

    rows: Sequences | None = None
    runs = (1, 1)

    @property
    def run(self) -> int:
        return self.k

    @property
    def operands(self) -> tuple[TensorType, ...]:
        _, *corrections = self.start_types(self.m)
        return (
            TensorType((self.m, self.k), "i8"),
            *self.packed_types,
            *corrections,
            *operand_types(self.epilogue, (self.m, self.n), self.columns),
            *self.counts,
        )
