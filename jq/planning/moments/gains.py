"""Gains: how far the rows of products move the output, kept for the next pass that asks.

A gradient costs twice a run of the model, and some seconds to compile; all recovery passes need the
same. Passes before leave the function as it is, with products scaled by channel at most."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from jq.artifact.keys import digest
from jq.formats.arrays import Array
from jq.planning.calibration.histogram import NUMPY_STATS, StatOps

ROUNDS = 1  # random directions of the output per batch
ROOM = 64 << 20  # bytes; what does not fit is found again
Found = Mapping[str, np.ndarray]


class Gradient(Protocol):
    """Rows by op, for inputs, a seed and a number of rounds; `axes` has every op that it finds."""

    @property
    def axes(self) -> Mapping[str, tuple[int, ...]]: ...

    def __call__(self, inputs: Sequence[np.ndarray], seed: int, rounds: int) -> Found: ...


@dataclass
class Gains:
    """The mean squared gradient of each row, by op and number of the sample."""

    known: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)
    size: int = 0
    gradient: Gradient | None = None
    names: frozenset[str] = frozenset()  # that the gradient finds, or cannot find

    def of(
        self,
        names: Collection[str],
        sample: int,
        inputs: Sequence[np.ndarray],
        make: Callable[[], Gradient | None],
    ) -> Found:
        """Cached gains of a sample, else computed; missing where no gradient exists. A gradient
        is made where there is none for all of `names`."""
        if all((name, sample) in self.known for name in names):
            return {name: self.known[name, sample] for name in names}
        if not self.names.issuperset(names):
            self.gradient = make()
            self.names = frozenset({*names, *(self.gradient.axes if self.gradient else ())})
        found = self.gradient(inputs, sample, ROUNDS) if self.gradient else {}
        self.unpack({f"{sample} {name}": rows for name, rows in found.items()})
        return {name: found[name] for name in names if name in found}

    def forget_gradient(self) -> None:
        """The next one is made for the program that asks: what is found does not depend on whether
        a pass before it ran, or was taken from an earlier run."""
        self.gradient, self.names = None, frozenset()

    def digest(self) -> str:
        """All cached gains."""
        return digest([[key, self.known[key]] for key in sorted(self.known)])

    def packed(self, before: Collection[tuple[str, int]]) -> dict[str, np.ndarray]:
        """The gains that have become known since, by sample and name in one word."""
        known = self.known.items()
        return {
            f"{sample} {name}": v for (name, sample), v in known if (name, sample) not in before
        }

    def unpack(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Takes in gains, by sample and name in one word, as far as there is room."""
        for word, rows in arrays.items():
            sample, _, name = word.partition(" ")
            key = name, int(sample)
            if key not in self.known and self.size + rows.nbytes <= ROOM:
                self.known[key] = rows
                self.size += rows.nbytes


# Second moments of the inputs of a product, and the weights of their rows.
F32 = np.float32
F64 = np.float64


@dataclass
class Moments:
    """Moments of the rows of one input of a contraction; channels in the order that was asked for.

    Where the whole gram was asked for, what follows `total` is empty.

    Attributes:
        gram: [K, K], the sum of weight * x x^T; [K], its diagonal, where that is enough.
            With several groups (a grouped convolution, a batched product), they are in front.
        total, sum: of the rows' weights; f64[K] of the weighted rows.
        low, high: f32[samples, K], extremes over each one's rows of weight above zero.
        rows, share: f32[n, K], some of the rows, and f64[n], the weight that each stands for."""

    gram: np.ndarray
    total: float
    sum: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rows: np.ndarray
    share: np.ndarray

    def add(self, other: "Moments") -> "Moments":
        parts = zip(*([m.low, m.high, m.rows, m.share] for m in (self, other)), strict=True)
        return Moments(
            self.gram + other.gram,
            self.total + other.total,
            self.sum + other.sum,
            *map(np.concatenate, parts),
        )


def gram_alone(gram: np.ndarray, weights: np.ndarray) -> Moments:
    return Moments(gram, shares(weights, 0)[0], *[np.zeros(0, F32)] * 5)


def shared_weights(weights: np.ndarray, sequences: int) -> np.ndarray:
    """f32[groups, rows]: summed with these, rows that are all equal have the gram of them all."""
    runs = weights.reshape(len(weights), sequences, -1)
    total = runs.sum(-1, keepdims=True)
    scaled = runs / np.sqrt(np.where(total > 0, total, 1))
    return scaled.reshape(weights.shape).astype(F32)


def counted_rows(x: np.ndarray, weights: np.ndarray, sequences: int, shared: float) -> np.ndarray:
    """Rows whose gram is that of `x` f32[rows, K], each counted by `weights` f32[1, rows], a share
    of it being that of what the rows of each sequence have in common."""
    keep = weights[0] > 0
    rows = x[keep] * np.sqrt(weights[0, keep, None])
    if not (shared and sequences):
        return rows
    common = x * shared_weights(weights, sequences)[0, :, None]
    common = common.reshape(sequences, -1, x.shape[1]).sum(1)
    return np.concatenate([rows * F32(np.sqrt(1 - shared)), common * F32(np.sqrt(shared))])


def shares(weights: np.ndarray, count: int) -> tuple[float, np.ndarray]:
    """The sum of the rows' weights, and what each of those kept stands for."""
    total = float(weights.sum(dtype=F64))
    return total, np.full(count, total / max(count, 1))


# Sums with the same bits in any order, by any number of threads, on any processor.
# Terms are rounded to integers, per channel: q = round(x / unit), where 2^b units are the power of
# two above the largest |x|. With n terms of |q| <= 2^b (of their products, 2^2b), every partial sum
# is an integer of at most 2^53, which float64 holds exactly, in whatever order it is reached.
# Rounding costs 2^-b of a channel's largest value at most: b is 26 for a single row, 20 for 8,192
# rows and 17 for half a million.
# BLAS and XLA choose the order by the number of their threads, the shapes and the processor: codes
# that were solved with sums of float32 differed between processes of one machine.
EXACT = 53  # bits of an integer that float64 holds
# Takes the place of smaller largest values, of 0 too: no unit is 0, no step infinite.
LEAST = 2.0**-200
EXPONENT = 0x7FF << 52  # of a float64


def gram(ops: StatOps, x: Array) -> Array:
    """x^T x in f64[groups, K, K] of [groups, rows, K], group by group."""
    shape = ops.shape(x)
    width = shape[2]
    q, unit = _integers(ops, x, [1], 2, shape[1])
    scale = ops.reshape(unit, (shape[0], width))
    product = ops.gram(q, q)
    for dims in ([0, 1], [0, 2]):
        product = ops.mul(product, ops.broadcast(scale, (shape[0], width, width), dims))
    return product


def gram_of_rows(x: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
    """x^T y f64[K, L] of [rows, K] and [rows, L], by default x; bits of `gram`, no copies."""
    y = x if y is None else y
    if not len(x):  # a call may select no row
        return np.zeros((x.shape[1], y.shape[1]), F64)
    q, unit = _integers(NUMPY_STATS, x, [0], 2, len(x))
    other, step = (q, unit) if y is x else _integers(NUMPY_STATS, y, [0], 2, len(y))
    product = np.asarray(q.T @ other)
    product *= unit.T
    product *= step
    return product


class RowsGram:
    """The gram of rows that come few at a time, and are multiplied many at a time."""

    def __init__(self) -> None:
        self._total: np.ndarray | None = None
        self._waiting: list[np.ndarray] = []

    def add(self, rows: np.ndarray) -> None:
        self._waiting.append(rows)
        if sum(map(len, self._waiting)) >= rows.shape[1]:
            self.total()

    def total(self) -> np.ndarray:
        """The gram of all rows so far; rows that follow are added to it in place."""
        if self._waiting:
            new, self._waiting = gram_of_rows(np.concatenate(self._waiting)), []
            self._total = new if self._total is None else np.add(self._total, new, out=self._total)
        assert self._total is not None
        return self._total


def total(ops: StatOps, x: Array, axes: Sequence[int]) -> Array:
    """Sums over axes, which are dropped, in f64."""
    shape = ops.shape(x)
    q, unit = _integers(ops, x, axes, 1, int(np.prod([shape[a] for a in axes])))
    found = ops.sum(q, axes)
    return ops.mul(found, ops.reshape(unit, ops.shape(found)))


def _integers(
    ops: StatOps, x: Array, axes: Sequence[int], factors: int, count: int
) -> tuple[Array, Array]:
    """Integers in f64, and their unit, with the axes that are summed over kept as 1.

    Args:
        factors: how many of them are multiplied to give a term.
        count: of terms."""
    bits = (EXACT - max(count - 1, 0).bit_length()) // factors
    shape = ops.shape(x)
    most = ops.convert(ops.reduce_max(ops.abs(x), axes), F64)  # the narrow numbers are read faster
    most = ops.bitcast(ops.maximum(most, LEAST), np.int64)
    power = ops.bitcast(ops.bit_and(most, EXPONENT), F64)  # at most `most`, more than half of it
    steps = ops.broadcast(ops.div(2.0 ** (bits - 1), power), shape, range(len(shape)))
    return ops.round_even(ops.mul(ops.convert(x, F64), steps)), ops.mul(power, 2.0 ** (1 - bits))
