"""Codes and scales of a matrix that minimise the error of its product with given inputs.

For y = x W with H = sum x x^T, the error of a quantized W' is tr(D^T H D), D = W' - W. Every
column of W is a problem of its own. Three steps, none of which makes it worse:

1. ends of each block's range by search, weighted with H's diagonal;
2. GPTQ (Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
   Transformers", 2022, algorithm 1): row after row, the error is spread over the rows to come;
3. coordinate descent: each scale to its best value given the codes, then each row's codes to
   their best given all others, until that gains little.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from jq.errors import InternalError
from jq.formats import Encoding
from jq.formats.affine import affine_format
from jq.passes.recovery._ranges import search_ranges

DType = np.dtype[np.generic]
COLUMNS = 1024  # that are solved for together
LAZY = 64  # rows whose errors are spread over the rest at once
SETTLED = 0.02  # a pass of coordinate descent that gains less than this share is the last
SINGLE = 0.05  # relative error that a factor of H may have


@dataclass
class Solution:
    """Integers of W [K, N] with blocks along K: real = scale * (codes - zero)."""

    codes: np.ndarray  # f32[K, N]
    scale: np.ndarray  # f32[G, N]
    zero: np.ndarray  # f32[G, N]
    groups: list[slice]
    limits: tuple[int, int]

    def columns(self, start: int) -> Solution:
        """Views of `COLUMNS` columns."""
        own = np.s_[:, start : start + COLUMNS]
        codes, scale, zero = self.codes[own], self.scale[own], self.zero[own]
        return Solution(codes, scale, zero, self.groups, self.limits)

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
    threads: int = 1,
) -> Solution:
    """The best codes found for `weight` f32[K, N] given `gram` [K, K].

    Args:
        enc: of an affine format, of shape [K, N], with block (size, 1) or (0, 1).
        damping: times the mean of the gram's diagonal, added to it: how far what few samples
            say of correlations is trusted.
        order: quantize the rows with the largest inputs first.
        passes: of coordinate descent, at most.
        threads: that solve for some of the columns each. The codes do not depend on their number.
    """
    fmt = affine_format(enc.format)
    # The condition of h is K / damping at most.
    single = len(gram) * float(np.finfo(np.float32).eps) < SINGLE * damping
    h: np.ndarray = np.array(gram, np.float32 if single else np.float64)
    mean = float(np.trace(gram, dtype=np.float64)) / len(gram)
    h[np.diag_indices_from(h)] += damping * max(mean, 1e-30)
    groups = block_slices(enc)
    scale, zero = search_ranges(fmt, weight, np.diag(h)[:, None], enc)
    found = Solution(np.zeros_like(weight), scale, zero, groups, fmt.limits(enc))
    rows = np.argsort(-np.diag(h), kind="stable") if order else np.arange(len(h))
    feedback = _feedback(h, rows)
    single_h = h.astype(np.float32, copy=False)

    def columns(start: int) -> None:
        part, own = found.columns(start), np.ascontiguousarray(weight[:, start : start + COLUMNS])
        _gptq(part, own, rows, feedback)
        _descend(part, own, single_h, np.dtype(enc.scale_type), passes)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(columns, range(0, weight.shape[1], COLUMNS)))
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


def _gptq(found: Solution, weight: np.ndarray, rows: np.ndarray, feedback: np.ndarray) -> None:
    """Row k aims at w_k + sum_{j < k} L_jk (w_j - w'_j), for H = L D L^T with a unit upper L.

    That is GPTQ without the inverse of H: Chee et al., "QuIP: 2-Bit Quantization of Large Language
    Models With Guarantees", 2023 (LDLQ).
    """
    count = len(weight)
    group = np.concatenate([np.full(s.stop - s.start, g) for g, s in enumerate(found.groups)])
    low, high = found.limits
    own = weight[rows]
    aim = own.copy()
    for start in range(0, count, LAZY):
        stop = min(start + LAZY, count)
        errors = np.empty((stop - start, weight.shape[1]), np.float32)
        for i in range(start, stop):
            g = group[rows[i]]
            scale, zero = found.scale[g], found.zero[g]
            codes = _nearest(aim[i] / scale + zero, low, high)
            found.codes[rows[i]] = codes
            e = np.subtract(own[i], (codes - zero) * scale, out=errors[i - start])
            aim[i + 1 : stop] += feedback[i, i + 1 : stop, None] * e
        aim[stop:] += feedback[start:stop, stop:].T @ errors


def _nearest(codes: np.ndarray, low: int, high: int) -> np.ndarray:
    """Codes in range; `np.clip` takes longer than all the rest of a row."""
    np.rint(codes, out=codes)
    np.maximum(codes, low, out=codes)
    return np.minimum(codes, high, out=codes)


def _feedback(h: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """f32 L of `_gptq`, of H's rows and columns in this order.

    In reverse order it is Cholesky's lower triangle, its columns divided by their diagonal.
    """
    from scipy.linalg.lapack import dpotrf, spotrf  # it takes long to import

    back = rows[::-1]
    factorize = spotrf if h.dtype == np.float32 else dpotrf  # NumPy's copies element by element
    lower, failed = factorize(h[np.ix_(back, back)].T, lower=1, clean=1, overwrite_a=1)
    if failed:
        raise InternalError(f"a gram of {len(h)} inputs is singular at {failed}")
    lower /= np.diag(lower).copy()
    return np.asarray(lower[::-1, ::-1], np.float32)


def _descend(
    found: Solution,
    weight: np.ndarray,
    h: np.ndarray,
    scale_type: DType,
    passes: int,
) -> None:
    residual = h @ (found.real() - weight)  # H D: half the gradient, kept up to date
    # H times codes, less their zero, comes from H W' where a column has one scale.
    product = h @ weight if passes and len(found.groups) == 1 else None
    before = _quadratic(found.real() - weight, residual)
    for _ in range(passes):
        for g, s in enumerate(found.groups):
            steps = found.codes[s] - found.zero[g]
            whole = product is not None
            of_steps = (residual + product) / found.scale[g] if whole else h[s, s] @ steps
            change = _rescale(found, steps, residual[s], of_steps, g, scale_type)
            if whole:
                residual += of_steps * change
                moved = np.zeros_like(steps)
            elif s.stop - s.start > LAZY:
                residual += h[:, s] @ (steps * change)
                moved = np.zeros_like(steps)
            else:
                moved = steps * change
            for start in range(s.start, s.stop, LAZY):
                rows = slice(start, min(start + LAZY, s.stop))
                own = moved[start - s.start : rows.stop - s.start]  # of a small block: all of it
                local = residual[rows] + h[rows, rows] @ own
                residual += h[:, rows] @ (own + _recode(found, local, h[rows, rows], g, rows))
        after = _quadratic(found.real() - weight, residual)
        if before - after < SETTLED * before:
            return
        before = after


def _quadratic(a: np.ndarray, b: np.ndarray) -> float:
    """Sum of products."""
    return float(np.einsum("kn,kn->n", a, b).sum(dtype=np.float64))


def _rescale(
    found: Solution,
    steps: np.ndarray,
    residual: np.ndarray,
    of_steps: np.ndarray,
    g: int,
    scale_type: DType,
) -> np.ndarray:
    """Moves the scales of a block to the minimum, rounded to their type; by how much.

    `of_steps` is H times `steps`, the codes less their zero.
    """
    slope = np.einsum("kn,kn->n", steps, residual)
    curve = np.maximum(np.einsum("kn,kn->n", steps, of_steps), np.float32(1e-30))
    old = found.scale[g]
    new = (old - slope / curve).astype(scale_type).astype(np.float32)
    change = np.where(np.isfinite(new) & (new > 0), new - old, 0)
    change = np.where(2 * change * slope + change**2 * curve < 0, change, 0)
    found.scale[g] = old + change
    return np.asarray(change)


def _recode(
    found: Solution, residual: np.ndarray, h: np.ndarray, g: int, rows: slice
) -> np.ndarray:
    """Moves the codes of some rows of a block, one at a time, to their best; the change of W'.

    `residual` is used up.
    """
    scale = found.scale[g]
    codes = found.codes[rows]  # a view
    changes = np.empty_like(codes)
    for j in range(len(codes)):
        new = _nearest(codes[j] - residual[j] * (1 / h[j, j]) / scale, *found.limits)
        change = np.multiply(new - codes[j], scale, out=changes[j])
        if change.any():
            codes[j] = new
            residual[j + 1 :] += h[j + 1 :, j, None] * change  # the rows to come
    return changes


def error(solution: Solution, weight: np.ndarray, gram: np.ndarray) -> float:
    """tr(D^T H D)."""
    d = solution.real() - weight
    return float((d * (gram @ d)).sum())
