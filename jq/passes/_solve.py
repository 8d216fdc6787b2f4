"""Codes and scales of a matrix that minimise the error of its product with given inputs.

For y = x W with H = sum x x^T, the error of a quantized W' is tr(D^T H D), D = W' - W. Every
column of W is a problem of its own. Three steps, none of which makes it worse:

1. ends of each block's range by search, weighted with H's diagonal;
2. GPTQ (Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
   Transformers", 2022, algorithm 1): row after row, the error is spread over the rows to come;
3. coordinate descent: each scale to its best value given the codes, then each row's codes to
   their best given all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dtrtri

from jq.errors import InternalError
from jq.formats import Encoding, get_format
from jq.formats.affine import Affine
from jq.passes._ranges import search_ranges

DType = np.dtype[np.generic]
LAZY = 64  # rows whose errors are spread over the rest at once


@dataclass
class Solution:
    """Integers of W [K, N] with blocks along K: real = scale * (codes - zero)."""

    codes: np.ndarray  # f32[K, N]
    scale: np.ndarray  # f32[G, N]
    zero: np.ndarray  # f32[G, N]
    groups: list[slice]
    limits: tuple[int, int]

    def real(self) -> np.ndarray:
        parts = [(self.codes[s] - self.zero[g]) * self.scale[g] for g, s in enumerate(self.groups)]
        return np.concatenate(parts)


def solve(
    weight: np.ndarray,
    gram: np.ndarray,
    enc: Encoding,
    *,
    damping: float = 0.2,
    order: bool = True,
    passes: int = 3,
) -> Solution:
    """The best codes found for `weight` f32[K, N] given `gram` f64[K, K].

    Args:
        enc: of an affine format, of shape [K, N], with block (size, 1) or (0, 1).
        damping: times the mean of the gram's diagonal, added to it: how far what few samples
            say of correlations is trusted.
        order: quantize the rows with the largest inputs first.
        passes: of coordinate descent.
    """
    fmt = get_format(enc.format)
    assert isinstance(fmt, Affine)
    h = gram + damping * max(float(np.trace(gram)) / len(gram), 1e-30) * np.eye(len(gram))
    groups = block_slices(enc)
    scale, zero = search_ranges(fmt, weight, np.diag(h)[:, None], enc)
    found = Solution(np.zeros_like(weight), scale, zero, groups, fmt.limits(enc))
    _gptq(found, weight, h, order)
    _descend(found, weight, h.astype(np.float32), np.dtype(enc.scale_type), passes)
    return found


def block_slices(enc: Encoding) -> list[slice]:
    """The rows of each block of [K, N]."""
    rows, size = enc.shape[0], enc.block[0] or enc.shape[0]
    return [slice(i, min(i + size, rows)) for i in range(0, rows, size)]


def joined(parts: Sequence[Solution]) -> Solution:
    """Columns of several solutions, side by side."""
    codes, scale, zero = (
        np.concatenate([getattr(p, k) for p in parts], axis=1) for k in ("codes", "scale", "zero")
    )
    return Solution(codes, scale, zero, parts[0].groups, parts[0].limits)


def _gptq(found: Solution, weight: np.ndarray, h: np.ndarray, order: bool) -> None:
    count = len(weight)
    rows = np.argsort(-np.diag(h), kind="stable") if order else np.arange(count)
    group = np.concatenate([np.full(s.stop - s.start, g) for g, s in enumerate(found.groups)])
    low, high = found.limits
    upper = _upper(h[np.ix_(rows, rows)])
    left = weight[rows].copy()
    for start in range(0, count, LAZY):
        stop = min(start + LAZY, count)
        errors = np.empty((stop - start, weight.shape[1]), np.float32)
        for i in range(start, stop):
            g = group[rows[i]]
            scale, zero = found.scale[g], found.zero[g]
            codes = np.clip(np.rint(left[i] / scale) + zero, low, high)
            found.codes[rows[i]] = codes
            e = (left[i] - (codes - zero) * scale) / upper[i, i]
            left[i + 1 : stop] -= upper[i, i + 1 : stop, None] * e
            errors[i - start] = e
        left[stop:] -= upper[start:stop, stop:].T @ errors


def _upper(h: np.ndarray) -> np.ndarray:
    """f32 U, upper triangular, with U^T U = H^-1: the inverse of R, H = R R^T."""
    reverse = np.linalg.cholesky(h[::-1, ::-1])[::-1, ::-1]
    upper, info = dtrtri(reverse, lower=0)
    if info:
        raise InternalError(f"a gram of {len(h)} inputs is singular at {info}")
    return np.asarray(upper, np.float32)


def _descend(
    found: Solution,
    weight: np.ndarray,
    h: np.ndarray,
    scale_type: DType,
    passes: int,
) -> None:
    residual = h @ (found.real() - weight)  # H D: half the gradient, kept up to date
    for _ in range(passes):
        for g, s in enumerate(found.groups):
            moved = _rescale(found, residual[s], h[s, s], g, scale_type)
            if s.stop - s.start > LAZY:
                residual += h[:, s] @ moved
                moved = np.zeros_like(moved)
            for start in range(s.start, s.stop, LAZY):
                rows = slice(start, min(start + LAZY, s.stop))
                own = moved[start - s.start : rows.stop - s.start]  # of a small block: all of it
                local = residual[rows] + h[rows, rows] @ own
                residual += h[:, rows] @ (own + _recode(found, local, h[rows, rows], g, rows))


def _rescale(
    found: Solution, residual: np.ndarray, h: np.ndarray, g: int, scale_type: DType
) -> np.ndarray:
    """Moves the scales of a block to the minimum, rounded to their type; the change of W'."""
    steps = found.codes[found.groups[g]] - found.zero[g]
    slope = (steps * residual).sum(0)
    curve = np.maximum((steps * (h @ steps)).sum(0), np.float32(1e-30))
    old = found.scale[g]
    new = (old - slope / curve).astype(scale_type).astype(np.float32)
    change = np.where(np.isfinite(new) & (new > 0), new - old, 0)
    change = np.where(2 * change * slope + change**2 * curve < 0, change, 0)
    found.scale[g] = old + change
    return np.asarray(steps * change)


def _recode(
    found: Solution, residual: np.ndarray, h: np.ndarray, g: int, rows: slice
) -> np.ndarray:
    """Moves the codes of some rows of a block, one at a time, to their best; the change of W'."""
    scale, zero = found.scale[g], found.zero[g]
    codes = found.codes[rows]  # a view
    changes = np.empty_like(codes)
    for j in range(len(codes)):
        target = (codes[j] - zero) * scale - residual[j] / h[j, j]
        new = np.clip(np.rint(target / scale) + zero, *found.limits)
        changes[j] = (new - codes[j]) * scale
        codes[j] = new
        residual += h[:, j, None] * changes[j]
    return changes


def error(solution: Solution, weight: np.ndarray, gram: np.ndarray) -> float:
    """tr(D^T H D)."""
    d = solution.real() - weight
    return float((d * (gram @ d)).sum())
