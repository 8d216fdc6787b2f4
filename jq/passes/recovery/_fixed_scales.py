"""Codes of a matrix whose scales and offsets stand already: `value = scale * code + offset`.

As in `_solve`: GPTQ (each row takes over the errors of those before it), then coordinate descent,
each code to its best given all others. Neither changes a scale, whose own quantization (k-quants
have scales of 6 bits) ties it to others.
"""

import numpy as np

from jq.passes.recovery._descent import LAZY, SETTLED, quadratic
from jq.passes.recovery._grids import nearest
from jq.passes.recovery._solve import _feedback
from jq.passes.recovery._units import near_one


def best_codes(
    weight: np.ndarray,
    gram: np.ndarray,
    scale: np.ndarray,
    offset: np.ndarray,
    limits: tuple[int, int],
    *,
    damping: float = 0.1,
    passes: int = 2,
) -> np.ndarray:
    """Integers f32[K, N] that make the products of `weight` f32[K, N] with given inputs change
    least.

    Args:
        gram: of the inputs, [K, K], the sum of x x^T.
        scale, offset: f32[K / run, N], for every `run` rows; a scale may be 0 or negative.
        limits: the smallest and the largest code.
        damping: times the mean of the gram's diagonal, added to it.
        passes: of coordinate descent, at most.
    """
    h = near_one(np.array(gram, np.float64))
    h[np.diag_indices_from(h)] += damping * max(float(np.trace(h)) / len(h), 1e-30)
    run = len(weight) // len(scale)
    grid = _Grid(np.repeat(scale, run, axis=0), np.repeat(offset, run, axis=0), limits)
    rows = np.argsort(-np.diag(h), kind="stable")
    codes = _gptq(weight, grid, rows, _feedback(h, rows))
    _descend(codes, weight, grid, h.astype(np.float32), passes)
    return codes


class _Grid:
    def __init__(self, scale: np.ndarray, offset: np.ndarray, limits: tuple[int, int]) -> None:
        self.scale, self.offset, self.limits = scale, offset, limits
        with np.errstate(divide="ignore", over="ignore"):
            inverse = np.float32(1) / scale
        self.inverse = np.where(np.isfinite(inverse), inverse, np.float32(0))

    def real(self, codes: np.ndarray) -> np.ndarray:
        return np.asarray(codes * self.scale + self.offset)


def _gptq(weight: np.ndarray, grid: _Grid, rows: np.ndarray, feedback: np.ndarray) -> np.ndarray:
    """The row that comes k-th aims at its weight and what `feedback` says of the errors so far."""
    codes = np.empty_like(weight)
    own, aim = weight[rows], weight[rows]
    for start in range(0, len(rows), LAZY):
        stop = min(start + LAZY, len(rows))
        errors = np.empty((stop - start, weight.shape[1]), np.float32)
        for i in range(start, stop):
            r = rows[i]
            codes[r] = nearest((aim[i] - grid.offset[r]) * grid.inverse[r], *grid.limits)
            errors[i - start] = own[i] - (codes[r] * grid.scale[r] + grid.offset[r])
            aim[i + 1 : stop] += feedback[i, i + 1 : stop, None] * errors[i - start]
        aim[stop:] += feedback[start:stop, stop:].T @ errors
    return codes


def _descend(
    codes: np.ndarray, weight: np.ndarray, grid: _Grid, h: np.ndarray, passes: int
) -> None:
    residual = h @ (grid.real(codes) - weight)  # half the gradient, kept up to date
    before = quadratic(grid.real(codes) - weight, residual)
    for _ in range(passes):
        for start in range(0, len(codes), LAZY):
            rows = slice(start, min(start + LAZY, len(codes)))
            changes = _recode(codes[rows], residual[rows].copy(), h[rows, rows], grid, start)
            residual += h[:, rows] @ changes
        after = quadratic(grid.real(codes) - weight, residual)
        if before - after < SETTLED * before:
            return
        before = after


def _recode(
    codes: np.ndarray, residual: np.ndarray, h: np.ndarray, grid: _Grid, start: int
) -> np.ndarray:
    """Moves the codes of some rows to their best, one row at a time; the change of the values."""
    changes = np.empty_like(codes)
    for j in range(len(codes)):
        scale, inverse = grid.scale[start + j], grid.inverse[start + j]
        new = nearest(codes[j] - residual[j] * (1 / h[j, j]) * inverse, *grid.limits)
        changes[j] = (new - codes[j]) * scale
        codes[j] = new
        residual[j + 1 :] += h[j + 1 :, j, None] * changes[j]  # the rows to come
    return changes
