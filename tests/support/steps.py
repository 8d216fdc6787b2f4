"""Distances allowed between right results: steps of codes, and what they move."""

from __future__ import annotations

import numpy as np


def step_of(values: np.ndarray) -> float:
    """The distance of neighbouring codes of a tensor that was quantized last of all."""
    gaps = np.diff(np.unique(values))
    return float(gaps[gaps > 1e-6 * np.abs(values).max()].min())


def assert_one_code(found: np.ndarray, expected: np.ndarray) -> None:
    """Results that are quantized last of all: a number within a kernel's bound of the right one has
    another code where it lies next to a tie, and that is the next one. Few lie there.
    """
    difference = np.abs(found - expected)
    assert difference.max() < 1.01 * step_of(expected)
    assert (difference > 0).sum() <= max(1, 0.02 * difference.size)


def moved(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Most that `x @ weight` moves by where codes of x come out as the next ones: x in 256 codes
    from the range of each row, and weights in 8 bits a column.
    """
    step = (np.maximum(x.max(-1), 0) - np.minimum(x.min(-1), 0)) / 255
    stored = np.abs(weight) + np.abs(weight).max(0) / 254  # rounding moves it by half a step
    return step[..., None] * stored.sum(0)


def rounded_product(
    x: np.ndarray, error: np.ndarray | float, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`x @ weight`, and how far it is off at most where x is off by `error` and both are rounded to
    8 bits: x by rows, weights by columns, each by a step at most: half of one, and as much again at
    the end of a range whose zero point is rounded.
    """
    row = (np.abs(x) + error).max(-1, keepdims=True) / 127
    column = np.abs(weight).max(0) / 127
    most = (np.abs(x) + error + row) @ (np.abs(weight) + column)
    return x @ weight, most - np.abs(x) @ np.abs(weight)
