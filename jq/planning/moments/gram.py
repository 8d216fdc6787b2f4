"""Second moments of the inputs of a product, and the weights of their rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

F32 = np.float32
F64 = np.float64


@dataclass
class Moments:
    """Moments of the rows of one input of a contraction; channels in the order that was asked for.

    Where the whole gram was asked for, what follows `total` is empty.

    Attributes:
        gram: [K, K], the sum of weight * x x^T; [K], its diagonal, where that is enough.
            With several groups (a grouped convolution, a batched product), they are in front.
        total: sum of the rows' weights.
        sum: f64[K], the weighted sum of rows.
        low, high: f32[K], extremes over the rows of weight above zero.
        rows: f32[n, K], some of the rows, equal ones among them.
        share: f64[n], the weight that each of them stands for; their sum is `total`.
    """

    gram: np.ndarray
    total: float
    sum: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rows: np.ndarray
    share: np.ndarray

    def add(self, other: Moments) -> Moments:
        return Moments(
            self.gram + other.gram,
            self.total + other.total,
            self.sum + other.sum,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            np.concatenate([self.rows, other.rows]),
            np.concatenate([self.share, other.share]),
        )


def gram_alone(gram: np.ndarray, weights: np.ndarray) -> Moments:
    return Moments(gram, shares(weights, 0)[0], *[np.zeros(0, F32)] * 5)


def shared_weights(weights: np.ndarray, sequences: int) -> np.ndarray:
    """f32[groups, rows]: summed with these, rows that are all equal have the gram of them all."""
    runs = weights.reshape(len(weights), sequences, -1)
    total = runs.sum(-1, keepdims=True)
    scaled = runs / np.sqrt(np.where(total > 0, total, 1))
    return scaled.reshape(weights.shape).astype(F32)


def shares(weights: np.ndarray, count: int) -> tuple[float, np.ndarray]:
    """The sum of the rows' weights, and what each of those kept stands for."""
    total = float(weights.sum(dtype=F64))
    return total, np.full(count, total / max(count, 1))
