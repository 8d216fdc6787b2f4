"""Codes and scales of a matrix that minimise the error of its product with given inputs.

For y = x W with H = sum x x^T, the error of a quantized W' is tr(D^T H D), D = W' - W. Every
column of W is a problem of its own, unless G says how far directions of y move the output: for
tr(G D^T H D) some columns are solved after the others, and make up for what those lost, too. Three
steps, none of which makes it worse:

1. ends of each block's range by search, weighted with H's diagonal;
2. GPTQ (Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
   Transformers", 2022, algorithm 1): row after row, the error is spread over the rows to come;
3. coordinate descent (`_descent`), until that gains little; then 2 again, with its scales."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from jq.base.errors import InternalError
from jq.formats import Encoding, is_affine
from jq.formats.checks import SMALLEST_SCALE
from jq.passes.recovery._descent import COLUMNS, LAZY, Array, Solution, descend, panel_rows, runs
from jq.passes.recovery._grids import FormatGrid, Grid, grid_of
from jq.passes.recovery._points import Near, best_points
from jq.passes.recovery._ranges import far_exponents, near_one

NONE = np.float32(1e-30)  # stands for a scale of 0: all codes are the offset then
TOGETHER = 32  # columns at most that are solved for at once where others follow
TURNS = 24  # so many at least, where there are as many columns
FACTOR_TURNS = 4
DAMPING, DESCENTS = 0.1, 2  # of codes whose scales stand: as `damping` and `passes` of `solve`
SINGLE = 0.05  # relative error that a factor of H may have


def solve(
    weight: Array,
    gram: Array,
    enc: Encoding,
    *,
    grid: FormatGrid | None = None,
    damping: float = 0.2,
    passes: int = 3,
    threads: int = 1,
    outputs: Array | None = None,
    rounds: int = 1,
) -> Solution:
    """The best codes found for `weight` f32[K, N] given `gram` [K, K].

    Args:
        enc: of shape [K, N], with block (size, 1) or (0, 1).
        grid: of a weight that these are some columns of; default its own.
        damping: times the mean of the gram's diagonal, added to it: trust in correlations.
        passes: of coordinate descent, at most; `rounds` of it and GPTQ: a column keeps its best.
        threads: that solve for some of the columns each. The codes do not depend on their number.
        outputs: G [N, N], damped like H; default: all directions count alike."""
    grid = grid or grid_of(weight, enc)
    gram, far = near_one(gram), far_exponents(np.abs(weight).max(0, initial=0))
    if enc.scale_type == "float16" or not is_affine(enc.format):
        far = np.zeros_like(far)  # scales of so far exponents are refused, or 0
    if far.any():
        weight, outputs = np.ldexp(weight, -far), None
    scale, zero = (np.empty(enc.grid, np.float32) for _ in range(2))
    blocks = list(runs(0, enc.shape[0], enc.block[0] or enc.shape[0]))
    best = Solution(np.zeros_like(weight), scale, zero, blocks, grid)

    def begin(part: Solution, own: Array, diagonal: Array) -> None:
        ranges = enc.with_shape(own.shape, enc.block)
        part.scale[:], part.zero[:] = grid.begin(own, diagonal, ranges)

    _fit(best, weight, gram, begin, damping, passes, threads, outputs, rounds)
    if far.any():  # columns get their exponents; a block whose scale is too small is one of zeros
        best.scale[:] = np.minimum(np.ldexp(best.scale, far), np.finfo(np.float32).max)
        dead = best.scale < SMALLEST_SCALE
        for g, rows in enumerate(best.groups):
            best.codes[rows] = np.where(dead[g], best.zero[g], best.codes[rows])
        best.scale[dead] = 1
    return best


def best_codes(
    weight: Array, gram: Array, scale: Array, offset: Array, near: Near, together: int = 1
) -> Array:
    """Codes f32[K, N], value = scale * code + offset, for `weight` f32[K, N] given `gram`.

    Scale and offset f32[G, N], for every K / G rows, stay (k-quants have scales of 6 bits, tied to
    each other); a scale may be 0 or negative. `near` gives the codes nearest to numbers, or, of
    several that are chosen `together`, to f32 [n, together], by weights of their errors."""
    scale, rows = np.where(scale == 0, NONE, scale), len(weight) // len(scale)
    if together > 1:
        h, _ = _damped(near_one(gram), DAMPING)
        step, aim = (np.repeat(a, rows, axis=0) for a in (scale, offset))
        return best_points(weight - aim, h, partial(_feedback, h), step, near, together, DESCENTS)
    grid = Grid(lambda x: near(x, None), None)
    groups = list(runs(0, len(weight), rows))
    best = Solution(np.zeros(weight.shape, np.float32), scale, -offset / scale, groups, grid)
    _fit(best, weight, near_one(gram), lambda *own: None, DAMPING, DESCENTS, 1)
    return best.codes


def best_factors(values: Array, weight: Array, gram: Array, size: int) -> Array:
    """Factors f32[G, N] of each `size` rows of `values` f32[K, N], so that they come closest to
    `weight` given `gram`: each in turn the best that there is with the others as they are."""
    h = _damped(near_one(gram), DAMPING)[0].astype(np.float32, copy=False)
    values, lost = values.copy(), h @ (values - weight)
    factors = np.ones((len(values) // size, values.shape[1]), np.float32)
    for g, s in list(enumerate(runs(0, len(values), size))) * FACTOR_TURNS:
        own = values[s]
        slope, curve = (np.einsum("kn,kn->n", own, a) for a in (lost[s], h[s, s] @ own))
        step = -slope / np.maximum(curve, NONE)
        change = own * step
        lost += h[:, s] @ change
        values[s] += change
        factors[g] *= 1 + step
    return factors


def _fit(
    best: Solution,
    weight: Array,
    gram: Array,
    begin: Callable[[Solution, Array, Array], None],
    damping: float,
    passes: int,
    threads: int,
    outputs: Array | None = None,
    rounds: int = 1,
) -> None:
    """GPTQ and the descent, some columns at a time; `begin` gives each its scales, from the weight
    and H's diagonal, f32[K, 1]."""
    h, rows = _damped(gram, damping)
    feedback, single_h = _feedback(h, rows), h.astype(np.float32, copy=False)

    def columns(part: Solution, aim: Array) -> None:
        aim = np.ascontiguousarray(aim)
        begin(part, aim, np.diag(h)[:, None])
        least = np.full(aim.shape[1], np.inf, np.float32)
        for _ in range(rounds):
            before = [a.copy() for a in part.arrays]
            _gptq(part, aim, rows, feedback)
            descend(part, aim, single_h, passes)
            if rounds > 1:
                d = part.real() - aim
                error = np.einsum("kn,kn->n", d, single_h @ d)
                for now, old in zip(part.arrays, before, strict=True):
                    now[:, error > least] = old[:, error > least]
                least = np.minimum(error, least)

    if outputs is None:
        with ThreadPoolExecutor(threads) as pool:
            parts = runs(0, weight.shape[1], COLUMNS)
            list(pool.map(lambda s: columns(best.columns(s), weight[:, s]), parts))
        return
    g, turn = _damped(near_one(outputs), damping)
    between, ours, lost = _feedback(g, turn), best.columns(turn), np.zeros_like(weight)
    for s in runs(0, len(g), min(TOGETHER, -(-len(g) // TURNS))):
        part, own = ours.columns(s), weight[:, turn[s]]
        # With G = U F U^T these columns of D U are (D_s + D_before U_before,s U_ss^-1) U_ss: it is
        # the sum in the brackets that is to be 0, whatever U_ss mixes.
        known = lost[:, : s.start] @ between[: s.start, s]
        columns(part, own + np.linalg.solve(between[s, s].T, known.T).T)
        lost[:, s] = own - part.real()
    for mine, theirs in zip(best.arrays, ours.arrays, strict=True):
        mine[:, turn] = theirs


def _damped(gram: Array, damping: float) -> tuple[Array, Array]:
    """A gram, whose condition is K / damping at most, and its rows, the largest first."""
    single = len(gram) * float(np.finfo(np.float32).eps) < SINGLE * damping
    h: Array = np.array(gram, np.float32 if single else np.float64)
    mean = float(np.trace(gram, dtype=np.float64)) / len(gram)
    h[np.diag_indices_from(h)] += damping * max(mean, 1e-30)
    return h, np.argsort(-np.diag(h), kind="stable")


def joined(parts: Sequence[Solution]) -> Solution:
    """Columns of several solutions, side by side."""
    every = zip(*(p.arrays for p in parts), strict=True)
    codes, scale, zero = (np.concatenate(arrays, axis=1) for arrays in every)
    return Solution(codes, scale, zero, parts[0].groups, parts[0].grid)


def _gptq(found: Solution, weight: Array, rows: Array, feedback: Array) -> None:
    """Row k aims at w_k + sum_{j < k} L_jk (w_j - w'_j), for H = L D L^T with a unit upper L.

    That is GPTQ without the inverse of H: Chee et al., "QuIP: 2-Bit Quantization of Large Language
    Models With Guarantees", 2023 (LDLQ)."""
    count = len(weight)
    group = np.concatenate([np.full(s.stop - s.start, g) for g, s in enumerate(found.groups)])
    own = weight[rows]
    aim = own.copy()
    for panel in runs(0, count, panel_rows(count)):
        errors = np.empty((panel.stop - panel.start, weight.shape[1]), np.float32)
        for lazy in runs(panel.start, panel.stop, LAZY):
            local = errors[lazy.start - panel.start : lazy.stop - panel.start]
            before = np.ascontiguousarray(feedback[lazy, lazy].T)
            for j, i in enumerate(range(lazy.start, lazy.stop)):
                g = group[rows[i]]
                scale, zero = found.scale[g], found.zero[g]
                codes = found.grid.near((aim[i] + before[j, :j] @ local[:j]) / scale + zero)
                found.codes[rows[i]] = codes
                np.subtract(own[i], (codes - zero) * scale, out=local[j])
            aim[lazy.stop : panel.stop] += feedback[lazy, lazy.stop : panel.stop].T @ local
        aim[panel.stop :] += feedback[panel, panel.stop :].T @ errors


def _feedback(h: Array, rows: Array) -> Array:
    """f32 L of `_gptq`, of H's rows and columns in this order.

    In reverse order it is Cholesky's lower triangle, its columns divided by their diagonal."""
    from scipy.linalg.lapack import dpotrf, spotrf  # it takes long to import

    back = rows[::-1]
    factorize = spotrf if h.dtype == np.float32 else dpotrf  # NumPy's copies element by element
    lower, failed = factorize(h[np.ix_(back, back)].T, lower=1, clean=1, overwrite_a=1)
    if failed:
        raise InternalError(f"a gram of {len(h)} inputs is singular at {failed}")
    lower /= np.diag(lower).copy()
    return np.asarray(lower[::-1, ::-1], np.float32)
