"""The order of weights of 8 bits, multiplied as bytes, so that no sum of 16 bits saturates.

`vpmaddubsw` multiplies unsigned codes by signed weights and adds two products in 16 bits, where the
sum saturates. Products of some weights with codes from 0 to 255 fit, in whatever order they are
added, if positive weights sum to 128 at most, negative ones to -128 at least: 255 * 128 < 2^15.
What stands side by side is ours to choose:

- A window is 16 codes that lie side by side. For each panel of columns its codes may be put in any
  order: one shuffle does it for a row.
- A code x may be taken as 255 - x, with its weight negated: the sum of all products changes by a
  constant.

So the 16 weights of a window are divided into four quads. A quad is proven if its products fit for
every column of the panel. Two quads are a chain of eight codes:

    proven:    both quads are; products of four codes are added in 16 bits, and then widened
    by pairs:  every pair of products fits, and is widened by itself
    halved:    neither; w = floor(w / 2) + ceil(w / 2) makes two chains by pairs, which always fit

The search draws orders, keeps what is proven and draws the rest again: the same ones on every run.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from jq.kernels.tensor import Array

WINDOW, CHAIN, QUAD = 16, 8, 4
# Of positive weights and of negative ones: 128 each, so of their magnitudes and of their sum
# |p| + |n| + ||p| - |n|| = 2 max(|p|, |n|).
LIMIT = 2 * 128
ROUNDS, FEWEST, WORK = 160, 6, 1 << 20  # of orders that are drawn: as many windows, in all, about
MIXED = 0.3  # how often a quad that fits is drawn again with those that do not
PROVEN, BY_PAIRS, HALVED = range(3)
# Places of a chain's codes: the pairs of its first quad are the first pairs of both words.
PLACES = [0, 1, 4, 5, 2, 3, 6, 7]


@dataclass(frozen=True)
class PairOrder:
    """Windows [T, 16] of weights [16, columns].

    Attributes:
        source: i8 [T, 16], which code of the window is in each place.
        negated: bool [T, 16], which of these are taken as 255 - x.
        weights: i8 [T, 16, columns], in their places, and negated where the code is.
        kinds: [T, 2] of both chains: `PROVEN`, `BY_PAIRS` or `HALVED`."""

    source: Array
    negated: Array
    weights: Array
    kinds: Array

    @staticmethod
    def of(windows: Array) -> "PairOrder":
        """An order of windows i8 [T, 16, columns] in which many chains are proven."""
        rng, wide = np.random.default_rng(0), windows.astype(np.int16)
        rounds = min(ROUNDS, max(FEWEST, WORK // max(1, len(windows))))
        order, fits = _proven(rng, wide, rounds)
        order, fits = _in_chains(wide, order, fits)
        signs, _ = _signs(wide, order, QUAD)
        kinds = np.where(fits.reshape(-1, 2, 2).all(2), PROVEN, HALVED)
        _by_pairs(rng, wide, order, signs, kinds, rounds)
        return _placed(wide, order, signs, kinds)


def _proven(rng: np.random.Generator, windows: Array, rounds: int) -> tuple[Array, Array]:
    """Orders [T, 16], and which quads fit in them, [T, 4]."""
    order = np.tile(np.arange(WINDOW), (len(windows), 1))
    _, fits = _signs(windows, order, QUAD)
    empty: Array = np.logical_not(windows.reshape(len(windows), WINDOW // QUAD, -1).any(2))
    for _ in range(rounds):
        (open_,) = np.nonzero(~fits.all(1))
        if not len(open_):
            break
        loose = _loose(rng, fits[open_], empty[open_])
        tried = _shuffled(rng, order[open_], np.repeat(loose, QUAD, 1))
        _, now = _signs(windows[open_], tried, QUAD)
        better = now.sum(1) >= fits[open_].sum(1)
        order[open_[better]], fits[open_[better]] = tried[better], now[better]
    return order, fits


def _signs(windows: Array, order: Array, size: int) -> tuple[Array, Array]:
    """Signs by which groups of `size` weights fit best [T, 16], and if they fit [T, 16 / size]."""
    groups = windows[np.arange(len(windows))[:, None], order]
    groups = groups.reshape(len(windows), WINDOW // size, size, -1)
    first, *others = np.moveaxis(groups, 2, 0)
    magnitude = np.abs(groups).sum(2, dtype=np.int16)
    sums = [first]
    for other in others:
        sums = [both for s in sums for both in (s + other, s - other)]
    worst = np.stack([_largest(magnitude + np.abs(s)) for s in sums])
    best = worst.argmin(0)
    options = np.array([(1, *rest) for rest in product((1, -1), repeat=size - 1)], np.int16)
    signs = options[best]
    beyond = ((groups == -128) & (signs < 0)[..., None]).any((2, 3))  # 128 is no i8
    return signs.reshape(len(windows), WINDOW), (worst.min(0) <= LIMIT) & ~beyond


def _largest(values: Array) -> Array:
    """The maximum along the last axis, by halves: it is short, and NumPy would take each apart."""
    while (size := values.shape[-1]) > 1:
        values = np.maximum(values[..., : (size + 1) // 2], values[..., size // 2 :])
    return values[..., 0]


def _loose(rng: np.random.Generator, fits: Array, empty: Array) -> Array:
    """Quads that are drawn again: those that do not fit, and now and then another one; always where
    one does not."""
    loose = ~fits
    alone = np.nonzero((loose.sum(1) == 1) | (rng.random(len(fits)) < MIXED))[0]
    other = np.where(loose | empty, -1.0, rng.random(loose.shape)).argmax(1)
    loose[alone, other[alone]] = True
    return loose


def _shuffled(rng: np.random.Generator, order: Array, free: Array) -> Array:
    """Codes in free places in another order; the others stay."""
    places = np.argsort(~free, axis=1, kind="stable")  # free ones first
    drawn = np.argsort(np.where(free, rng.random(free.shape), 2.0), axis=1, kind="stable")
    result = order.copy()
    np.put_along_axis(result, places, np.take_along_axis(order, drawn, 1), 1)
    return result


def _in_chains(windows: Array, order: Array, fits: Array) -> tuple[Array, Array]:
    """Quads that fit side by side, and those without weights, which make no chain, at the end."""
    groups = windows[np.arange(len(windows))[:, None], order]
    empty = ~groups.reshape(*fits.shape, -1).any(2)
    by = np.argsort(np.where(empty, 2, ~fits), axis=1, kind="stable")
    at = (by[..., None] * QUAD + np.arange(QUAD)).reshape(order.shape)
    return np.take_along_axis(order, at, 1), np.take_along_axis(fits, by, 1)


def _by_pairs(
    rng: np.random.Generator, windows: Array, order: Array, signs: Array, kinds: Array, rounds: int
) -> None:
    """Puts the codes of chains that are not proven in pairs that fit, where such are found."""
    for _ in range(rounds):
        (open_,) = np.nonzero((kinds == HALVED).any(1))
        if not len(open_):
            return
        now, fits = _signs(windows[open_], order[open_], 2)
        open_kinds = kinds[open_]
        found = fits.reshape(len(open_), 2, -1).all(2) & (open_kinds == HALVED)
        kinds[open_] = np.where(found, BY_PAIRS, open_kinds)
        signs[open_] = np.where(np.repeat(found, CHAIN, 1), now, signs[open_])
        left = np.repeat(kinds[open_] == HALVED, CHAIN, 1)
        for half in (slice(0, CHAIN), slice(CHAIN, WINDOW)):
            free = left.copy()
            free[:, half] = False
            order[open_] = _shuffled(rng, order[open_], free)


def _placed(windows: Array, order: Array, signs: Array, kinds: Array) -> PairOrder:
    """Codes in the places where the words of a chain have them."""
    places = np.concatenate([PLACES, CHAIN + np.array(PLACES)])
    source, sign = np.empty_like(order), np.empty_like(signs)
    source[:, places], sign[:, places] = order, signs
    sign[np.repeat(kinds == HALVED, CHAIN, 1)] = 1
    weights = windows[np.arange(len(windows))[:, None], source] * sign[..., None]
    return PairOrder(source.astype(np.int8), sign < 0, weights.astype(np.int8), kinds)
