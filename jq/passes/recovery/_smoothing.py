"""Factors of `smooth`: how much of the products' error they take away, by an estimate."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jq.planning.moments.collect import Moments

STRENGTHS = np.arange(0, 1.01, 0.05)
SHARES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)  # of the channels that keep their size
QUIET = 4  # how much quieter than the median channel one may count, at least
TRUST = 8  # rows for each time more
FEW = 32  # rows: what fewer say of tails may be off by as many times
LEAST_END = 0.5  # of what was seen: where a range may end
GROWN, LOST = 4, 0.1  # noise of a column: times what it was, beside its signal: then it is lost


@dataclass(frozen=True)
class Weighted:
    """The weight that multiplies x, f32[K, N], and the moments of x weighted for this product.

    `most`: the steps from 0 to the largest number of a scale, which so many `rows` of a column
    share (0: all)."""

    moments: Moments
    weight: np.ndarray
    most: float = 127.0
    rows: int = 0

    def noise(self, sizes: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Noise of each column, times 12, by rounding the weight, whose size is `sizes` then."""
        starts = range(0, len(sizes), self.rows or len(sizes))
        shares, total = self.moments.gram / s**2, np.zeros(sizes.shape[1])
        for start in starts:
            own = slice(start, start + (self.rows or len(sizes)))
            total += (sizes[own].max(0).astype(np.float64) / self.most) ** 2 * shares[own].sum()
        return total


def heard(seen: np.ndarray, count: int) -> np.ndarray:
    """Extents of channels: one that was quiet in few rows may not stay so."""
    quiet = max(QUIET, count / TRUST)
    return np.maximum(seen, max(np.median(seen) / quiet, seen.max() / quiet**3, 1e-12))


def alike(seen: np.ndarray, count: int) -> np.ndarray:
    """Extents f64[K] of channels of which `seen` is the largest of `count` numbers each.

    The logarithm of such an extreme of normal numbers varies by pi / sqrt(6) / (2 ln(count)), and
    twice as much in the square is allowed for, as rows are not independent. What channels differ by
    beyond that is their own: they are drawn to the median by the share of chance (an estimate of
    James and Stein)."""
    logs = np.log(seen)
    middle = np.median(logs)
    chance = math.pi**2 / 12 / math.log(max(count, 2)) ** 2
    own = max(0.0, 1 - chance / max(np.square(logs - middle).mean(), 1e-30))
    return np.exp(middle + own * (logs - middle))


def beyond(end: np.ndarray, seen: np.ndarray, count: int) -> np.ndarray:
    """E[(x - end)^2; x > end] of numbers x, of which `seen` is the largest of `count`.

    Tails of normal numbers: P(x > end) = count^-(end / seen)^2, of which 1 in `count` lies beyond
    `seen`. They fall by 1/e within b = seen^2 / (2 end ln(count)): 2 b^2 P."""
    log, share = math.log(max(count, 2)), np.maximum(end / seen, LEAST_END)
    return 2 * (seen / (2 * share * log)) ** 2 * np.exp(-log * share**2)


def missed(own: Sequence[np.ndarray], other: Sequence[np.ndarray], s: np.ndarray) -> np.ndarray:
    """Sums of (x - end)^2 of the lows and highs f64[samples, K] of `other` samples beyond the range
    of x / s in its `own`."""
    low, high = np.minimum(own[0] / s, 0).min() * s, np.maximum(own[1] / s, 0).max() * s
    over, under = np.maximum(other[1] - high, 0), np.minimum(other[0] - low, 0)
    return np.asarray((over**2 + under**2).sum(0))


class _Trials:
    """Estimated errors of the products of one activation x, by factors s f64[K] of its channels.

    Attributes:
        lows, highs: f64[samples, K], the ends of x in each sample, 0 among them.
        ones, every: factors that change nothing, and all that are tried.
        lost: of each of those, what they lose of the half of the samples that they are not of."""

    def __init__(
        self, products: Sequence[Weighted], static: bool, rounding: float, count: int, bits: int
    ) -> None:
        self.products, self.static, self.rounding, self.count = products, static, rounding, count
        self.levels = (1 << bits) - 1
        # Infinite where no row of a sample counts.
        self.lows = np.min([p.moments.low for p in products], axis=0).astype(np.float64)
        self.highs = np.max([p.moments.high for p in products], axis=0).astype(np.float64)
        self.low, self.high = self.lows.min(0), self.highs.max(0)
        self.lows, self.highs = np.minimum(self.lows, 0), np.maximum(self.highs, 0)
        self.sizes = [np.abs(p.weight).astype(np.float32) for p in products]
        self.squares = [p.weight.astype(np.float64) ** 2 for p in products]
        largest = np.max([size.max(1) for size in self.sizes], axis=0).astype(np.float64)
        self.largest = np.maximum(largest, 1e-12 * largest.max())
        self.ones = np.ones_like(self.low)

    @property
    def counts(self) -> bool:
        """False where no row counts, or there is no weight."""
        return bool(np.isfinite(self.low).all() and self.largest.any())

    @cached_property
    def tails(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The mean of each channel, and its extents above and below that."""
        total = sum(p.moments.total for p in self.products)
        mean = np.sum([p.moments.sum for p in self.products], axis=0) / total
        ends = self.high - mean, mean - self.low
        up, down = (alike(heard(d, self.count), self.count) for d in ends)
        return mean, up, down

    @cached_property
    def every(self) -> list[np.ndarray]:
        return self._candidates(self.low, self.high, self.count)

    def _candidates(self, low: np.ndarray, high: np.ndarray, count: int) -> list[np.ndarray]:
        extent = heard(np.maximum(np.abs(low), np.abs(high)), count)
        extent = alike(extent, count) if self.static else extent
        found = [extent**t / self.largest ** (1 - t) for t in STRENGTHS]
        found += [np.maximum(1.0, extent / limit) for limit in np.quantile(extent, SHARES)]
        centred = (s / np.exp(np.log(s).mean()) for s in found)
        return [self.ones, *(2.0 ** np.clip(np.rint(np.log2(s)), -20, 20) for s in centred)]

    @cached_property
    def lost(self) -> dict[bytes, np.ndarray]:
        lost = {s.tobytes(): np.zeros_like(self.low) for s in self.every}
        halves = [(self.lows[i::2], self.highs[i::2]) for i in (0, 1)]
        for own, other in (halves, halves[::-1]) if len(self.lows) > 1 else ():
            half = self._candidates(own[0].min(0), own[1].max(0), self.count // 2)
            without = missed(own, other, self.ones)
            # Of equal ones the first counts: ones are ones.
            pairs = zip(self.every[::-1], half[::-1], strict=True)
            for key, own_s in {s.tobytes(): h for s, h in pairs}.items():
                lost[key] = lost[key] + np.maximum(missed(own, other, own_s) - without, 0)
        return lost

    def noise(self, s: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Noise of each product, times 12: by channels of x, for weights of 1, and by columns."""
        s32 = s.astype(np.float32)
        for p, size in zip(self.products, self.sizes, strict=True):
            if self.static:
                of_rows = p.moments.total * self._of_range(s)
            else:
                rows = p.moments.rows * (1 / s32)
                extents = np.maximum(rows.max(1), 0) - np.minimum(rows.min(1), 0)
                ranges = float(extents.astype(np.float64) ** 2 @ p.moments.share)
                of_rows = ranges / self.levels**2 * s**2
            yield of_rows, self.rounding * p.noise(size * s32[:, None], s)

    def _of_range(self, s: np.ndarray) -> np.ndarray:
        """Noise of a row, times 12, by channels: of the steps of one range, and beyond its ends."""
        mean, up, down = self.tails
        top, bottom = max(0.0, (self.high / s).max()), min(0.0, (self.low / s).min())
        step = (top - bottom) / self.levels
        cut = beyond(top * s - mean, up, self.count) + beyond(mean - bottom * s, down, self.count)
        cut = np.maximum(cut, self.lost[s.tobytes()] / self.count)
        return np.asarray((step * s) ** 2 + 12 * cut)

    def error(self, s: np.ndarray) -> float:
        powers = (square.sum(1) for square in self.squares)
        pairs = zip(self.noise(s), powers, strict=True)
        return float(sum(of_rows @ power + own.sum() for (of_rows, own), power in pairs))

    def loses_a_column(self, s: np.ndarray) -> bool:
        """True if the noise of a column, small beside the others, becomes as large as itself."""
        both = zip(self.noise(s), self.noise(self.ones), strict=True)
        for (now, was), p, w in zip(both, self.products, self.squares, strict=True):
            after, before = (of_rows @ w + own for of_rows, own in (now, was))
            most = np.maximum(GROWN**2 * before, 12 * LOST**2 * (p.moments.gram @ w))
            if (after > most).any():
                return True
        return False


def factors(
    products: Sequence[Weighted], *, static: bool, rounding: float, count: int, bits: int = 8
) -> tuple[np.ndarray, float]:
    """Powers of two s[K] for one activation x, and how many times they make the error smaller (for
    static ranges of fewer than `FEW` rows, as many times less).

    The error of the products is estimated from rows r of x with steps d_r of x_r / s (all equal
    when static), and steps d_o of column o of diag(s) W:

        mean_r d_r^2 / 12 * sum_c s_c^2 |W_c|^2
        + rounding * sum_o d_o^2 / 12 * sum_c E[x_c^2] / s_c^2     (block by block, if there are)
        + sum_c |W_c|^2 * E[what of x_c lies beyond a static range]^2      (`beyond`, `missed`)

    Without the last one, few rows would be learned by heart: ranges that just hold what each
    channel showed in them cut off much of all others. Tails that are heavier than normal ones show
    where a candidate is made from one half of the samples, and loses more of the other than ones.

    Candidates: s = a^t / w^(1-t) for a strength t (SmoothQuant's), and s = max(1, a / limit), which
    only holds the largest channels back; a and w are the extents of activations and weights. What
    is least for the sum may be the end of a column that is small beside the others: such factors
    are left out.

    `rounding` is what is left of the weights' rounding error after this pass (GPTQ takes the larger
    part of it away), `count` that of the rows that were seen, `bits` those of the activation's
    codes. With 16, weights are the larger part of the error."""
    trials = _Trials(products, static, rounding, count, bits)
    ones = trials.ones
    if not trials.counts:
        return ones.astype(np.float32), 1.0
    ranked = sorted({s.tobytes(): s for s in trials.every}.values(), key=trials.error)
    best = next(s for s in ranked if s is ones or not trials.loses_a_column(s))
    trust = min(1.0, count / FEW) if static else 1.0
    return best.astype(np.float32), trust * trials.error(ones) / max(trials.error(best), 1e-300)
