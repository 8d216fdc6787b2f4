"""The weights of a `PairProduct`: panels of columns, in the order that lets most sums be proven."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jq.kernels.gemm.pair_order import CHAIN, HALVED, PROVEN, WINDOW, PairOrder
from jq.kernels.tensor import Array, cut_last

SHARES = 8  # of a segment's chains: their number is a multiple of one
STAGE = 1024  # codes of a row that are put in order at a time
# Multiplications of a chain by its kind, and with 16-bit operands.
COSTS, COST = np.array([3, 4, 8, 0]), 4
PIECES = 2  # more of them take as long as reading a vector that ends early, by powers of two
# What is added to a signed code q in two's complement by the mask that its bits meet: x = q + 128,
# and 255 - x = 127 - q.
AS_UNSIGNED, NEGATED = -128, 127


def segment_depth(k: int, lanes: int) -> int:
    """Codes of a segment, with those that fill its last vector."""
    size = 4 * lanes
    return math.ceil(min(k, STAGE) / size) * size


@dataclass(frozen=True)
class PairWeights:
    """A weight i8 [runs, run, groups, columns] by panels [P] of so many lanes, those of a group
    side by side, and segments [S] of runs."""

    weight: Array
    lanes: int

    @staticmethod
    def of_matrix(weight: Array, lanes: int) -> "PairWeights":
        """A weight i8 [K, N], which is one run and one group."""
        return PairWeights(weight[None, :, None], lanes)

    @property
    def run(self) -> int:
        return int(self.weight.shape[1])

    @property
    def shape(self) -> tuple[int, int, int]:
        """Panels, segments, windows of a segment."""
        runs, run, groups, columns = self.weight.shape
        windows = segment_depth(run, self.lanes) // WINDOW
        return groups * math.ceil(columns / self.lanes), runs * math.ceil(run / STAGE), windows

    @cached_property
    def order(self) -> PairOrder:
        panels, segments, windows = self.shape
        runs, run, groups, _ = self.weight.shape
        missing = segments // runs * windows * WINDOW - run
        padded = np.pad(self.weight, ((0, 0), (0, missing), (0, 0), (0, 0)))
        cut = cut_last(padded, panels // groups, self.lanes).transpose(3, 0, 1, 2, 4)
        return PairOrder.of(cut.reshape(-1, WINDOW, self.lanes))

    @cached_property
    def kinds(self) -> Array:
        """The kind of each chain, [P, S, windows * 2]; -1 without weights, where it is left out."""
        kinds = self.order.kinds.copy()
        kinds[~self.order.weights.reshape(-1, 2, CHAIN * self.lanes).any(2)] = -1
        return kinds.reshape(*self.shape[:2], -1)

    @cached_property
    def chains(self) -> int:
        """Chains of a segment, at most; those that are halved count twice. Rounded up, so that
        layers of one shape are few kernels."""
        count = (self.kinds >= 0).sum(2) + (self.kinds == HALVED).sum(2)
        part = max(1, math.ceil(min(self.run, STAGE) / CHAIN / SHARES))
        return math.ceil(max(1, count.max()) / part) * part

    @property
    def work(self) -> float:
        """Cost of its products, and of reading ends of runs, as a share of that in 16 bits."""
        runs = self.shape[0] * len(self.weight)
        total = COSTS[self.kinds].sum()  # the last one of those without weights
        pieces = (self.run % (CHAIN // 2 * self.lanes)).bit_count()
        total += PIECES * runs * (pieces > 1)
        return float(total) / (COST * runs * math.ceil(self.run / CHAIN))

    @property
    def source(self) -> Array:
        """i8 [P, S, 2, codes]: the code of its window in each place, and what changes its bits."""
        masks = np.where(self.order.negated, NEGATED, AS_UNSIGNED).astype(np.int8)
        both = np.stack([self.order.source, masks])
        return np.ascontiguousarray(both.reshape(2, *self.shape[:2], -1).transpose(1, 2, 0, 3))

    @property
    def correction(self) -> Array:
        """i64 [P, lanes]: what brings sums of changed codes back to those of signed ones."""
        weights = self.order.weights.astype(np.int64)
        # w (q + 128) is too much by 128 w; -w (127 - q), by -127 w.
        by = np.where(self.order.negated, NEGATED, -AS_UNSIGNED)[..., None]
        total = (weights * by).sum(1)
        return -total.reshape(self.shape[0], -1, self.lanes).sum(1)

    def chains_of(self, panel: int, segment: int) -> tuple[int, int, Array, Array]:
        """Number of chains that are proven and of those by pairs; the place of each among the
        segment's codes, and its weights [chains, 8, lanes]."""
        kinds = self.kinds[panel, segment]
        weights = self.order.weights.reshape(*self.shape[:2], -1, CHAIN, self.lanes)
        proven, others = np.nonzero(kinds == PROVEN)[0], np.nonzero(kinds > PROVEN)[0]
        halved = kinds == HALVED
        places, values = [proven], [weights[panel, segment, proven]]
        for part in (0, 1):
            some = others if part == 0 else np.nonzero(halved)[0]
            whole = weights[panel, segment, some]
            half = (whole >> 1) + (whole & 1) * part
            first = np.where(halved[some, None, None], half, whole)
            places.append(some)
            values.append(first)
        at = np.concatenate(places)
        return len(proven), len(at) - len(proven), at * CHAIN, np.concatenate(values)
