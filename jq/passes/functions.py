"""Functions that kernels have, recognised in a program by what they compute.

The values of a cut on sample points decide; the samples cover where the functions differ."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jq.ir import Program, dtype_of, ir, kind_of, shape_of
from jq.ir.slicing import Cut, cuts, functions, one_by_one
from jq.kernels import Clamp, Gelu, Silu, Step

TOLERANCE = 4e-6  # relative to 1 + |x|: a few roundings of float32, far below any kernel's bound
MAGNITUDES = 16  # of rows that tell normalizations apart
# The farthest may be doubled, as in x * (1 + erf(x / sqrt(2))) * 0.5.
_ENDS = [0.0, -100.0, 100.0, 1e-3, -1e-3, 1e4, -1e4, 1.5e38, -1.5e38, np.inf, -np.inf, np.nan]
_POINTS = np.concatenate([np.linspace(-12, 12, 4096), _ENDS]).astype(np.float32)
_SOME_POINTS = np.concatenate([np.linspace(-12, 12, 256), _ENDS]).astype(np.float32)


@dataclass(frozen=True)
class Activation:
    """A cut that is one step of an epilogue."""

    cut: Cut
    step: Step


def find_activation(program: Program, source: ir.Value) -> Activation | None:
    """The largest elementwise function of `source` that is a step, or None."""
    if dtype_of(source) != np.float32 or math.prod(shape_of(source)) == 0:
        return None
    found = None
    for cut in cuts(program, source):
        if any(kind_of(op) == "stablehlo.reduce" for op in cut.ops):
            break
        if shape_of(cut.result) != shape_of(source) or dtype_of(cut.result) != np.float32:
            continue
        if step := _step(cut, shape_of(source)):
            found = Activation(cut, step)
    return found


def _step(cut: Cut, shape: tuple[int, ...]) -> Step | None:
    size = math.prod(shape)
    points = _POINTS if size >= 64 else _SOME_POINTS  # a call of little for each
    if (element := cut.of_elements()) is not None:
        x, y = points.astype(np.float64), element(points).astype(np.float64)
    else:
        calls = [np.resize(part, shape) for part in np.array_split(points, -(-len(points) // size))]
        x = np.concatenate([c.reshape(-1) for c in calls]).astype(np.float64)
        y = np.concatenate([cut(c).reshape(-1) for c in calls]).astype(np.float64)
    low, high = float(np.fmin.reduce(y)), float(np.fmax.reduce(y))
    if low < high and np.array_equal(y, np.clip(x, low, high), equal_nan=True):
        bounds = [None if math.isinf(bound) else bound for bound in (low, high)]
        return None if bounds == [None, None] else Clamp(*bounds)
    half = 0.5 * x
    known = (
        (Gelu(), one_by_one(math.erf)(x / math.sqrt(2))),
        (Gelu(approximate=True), np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        (Silu(), np.tanh(half)),
    )
    with np.errstate(invalid="ignore"):  # -inf * 0
        for step, f in known:
            if np.isclose(y, half * (1 + f), 0, TOLERANCE * (1 + np.abs(x)), equal_nan=True).all():
                return step
    return None


@dataclass(frozen=True)
class Normalization:
    """A cut that is LayerNorm (`center`) or RMSNorm over the last axis."""

    cut: Cut
    center: bool
    epsilon: float
    gamma: np.ndarray | None
    beta: np.ndarray | None


def find_normalization(program: Program, source: ir.Value) -> Normalization | None:
    """The largest normalization of the rows of `source`, or None."""
    shape = shape_of(source)
    if dtype_of(source) != np.float32 or not shape or shape[-1] < 2 or math.prod(shape) == 0:
        return None
    found = None
    for cut in _row_functions(program, source):
        if shape_of(cut.result) == shape and kind_of(cut.ops[0]) != "stablehlo.reshape":
            found = as_normalization(cut, shape) or found
    return found


def _row_functions(program: Program, source: ir.Value) -> Iterator[Cut]:
    """All that is computed of `source`; where it is added to something later as well (a residual
    around the normalization), what is computed of the sum of its rows or of its squares."""
    whole = list(cuts(program, source))
    if whole:
        yield from whole
        return
    for use in source.uses:
        op = use.owner
        squared = kind_of(op) == "stablehlo.multiply" and all(v == source for v in op.operands)
        if kind_of(op) == "stablehlo.reduce" or (squared and use.operand_number == 0):
            yield from functions(program, source, op)


def as_normalization(
    cut: Cut, shape: tuple[int, ...], *, unit: bool = False
) -> Normalization | None:
    """The normalization of rows of `shape` that a cut computes, if it is one.

    `unit`: also rows divided by their length, `x * rsqrt(sum(x^2) + e)`, which is RMSNorm with a
    factor of n^-1/2. Rows of zeros may then give NaN."""
    kinds = {kind_of(op) for op in cut.ops}
    if math.prod(shape[-1:]) == 1:  # nothing is left of rows of one number
        return None
    if "stablehlo.reduce" not in kinds or not kinds & {"stablehlo.rsqrt", "stablehlo.sqrt"}:
        return None
    x = _rows(shape, 1e-3 if unit else 1e-5)
    y = np.stack([cut(part) for part in x]).astype(np.float64)
    beta = cut(np.zeros(shape, np.float32))
    if unit and np.isnan(beta).all():
        beta = np.zeros_like(beta)
    offset = beta.reshape(-1, shape[-1])[0]
    damaged = np.isnan(cut(np.full(shape, np.nan, np.float32))).all()
    even = (beta == offset).all()
    if not (damaged and even and np.isfinite(y).all()):
        return None
    lengths = (1, shape[-1]) if unit else (1,)
    splats = {float(a.flat[0]) for a in cut.constants.values() if a.size and (a == a.flat[0]).all()}
    epsilons = sorted({0.0, *(e for e in splats if 0 < e <= 1e-2)})
    for center in (True, False):
        for epsilon in (e / n for n in lengths for e in epsilons):
            u = x.astype(np.float64)
            u = u - u.mean(-1, keepdims=True) if center else u
            normal = u / np.sqrt((u**2).mean(-1, keepdims=True) + epsilon)
            gamma = _gamma(cut, normal, y - offset, lengths)
            if gamma is not None:
                ones = np.array_equal(gamma, np.ones_like(gamma))
                return Normalization(
                    cut, center, epsilon, None if ones else gamma, offset if offset.any() else None
                )
    return None


def _rows(shape: tuple[int, ...], least: float) -> np.ndarray:
    """Samples [calls, *shape] of rows from `least` up, to which an epsilon matters and to which it
    does not, however few rows there are at once. The last go as far as normalizations can."""
    rows, columns = math.prod(shape[:-1]), shape[-1]
    calls = -(-MAGNITUDES // rows)
    rng = np.random.default_rng(0)
    magnitude = np.resize(np.geomspace(least, 1e3, MAGNITUDES), (calls * rows, 1))
    x = (rng.standard_normal((calls * rows, columns)) + 0.5) * magnitude
    x[-2:, 1:], x[-2:, 0] = 0, (-1e3, 1e3)
    return np.asarray(x.reshape(calls, *shape), np.float32)


def _gamma(
    cut: Cut, normal: np.ndarray, y: np.ndarray, lengths: tuple[int, ...]
) -> np.ndarray | None:
    """The factor of every column, when `y` is `normal` times one, or over a root of `lengths`."""
    columns = normal.shape[-1]
    ones = np.ones(columns, np.float32)
    arrays = [a for a in cut.constants.values() if a.dtype == np.float32 and a.size >= columns]
    rows = [a.reshape(-1, columns)[0] for a in arrays if a.shape[-1] == columns]
    for factor in ((v / math.sqrt(n)).astype(np.float32) for n in lengths for v in (ones, *rows)):
        scale = np.abs(factor).max() + np.abs(y).max(-1, keepdims=True)
        if (np.abs(y - normal * factor) <= 2e-5 * scale).all():
            return factor
    return None
