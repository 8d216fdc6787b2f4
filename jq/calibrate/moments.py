"""Second moments of the inputs of contractions: what the recovery of weights is solved with.

    gram = sum over rows r of  weight(r) * x_r x_r^T          [K, K]

for a contraction y = x W. `weight(r)` says how much row r of y moves the program's output
(`jq.backend.sensitivity`), so that padding does not count and what matters counts more. Memory
does not grow with the number of batches: sums are taken inside the program, or, of few rows, of
some thousand at a time, without those of weight 0. A few rows are kept as they are, drawn with
probability weight(r).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from jq.backend.evaluate import Unsupported
from jq.backend.sensitivity import Sensitivity
from jq.backend.xla import XlaExecutable
from jq.calibrate.gains import Gains
from jq.calibrate.inputs import Wanted, extent, other_axes, rows_of
from jq.calibrate.stat_ops import PROGRAM_STATS as OPS
from jq.errors import UserError
from jq.ir import Program, at, ir
from jq.ir.build import NAME, string_attr

LOG = logging.getLogger("jq")
F32, I32 = np.float32, np.int32
Weights = np.ndarray  # f32[groups, rows]: how much each counts


@dataclass
class Moments:
    """Of the rows of one input of a contraction; channels in the order that was asked for.

    Attributes:
        gram: f64[K, K], as above; f64[K], its diagonal, where that is enough. With several groups
            (a grouped convolution, a batched product), this and the next have them in front.
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


@dataclass
class Gram:
    """x^T diag(w) x of rows that are given few at a time and multiplied many at a time."""

    total: np.ndarray  # f64[K, K]
    waiting: list[np.ndarray]
    count: int = 0

    def add(self, rows: np.ndarray, weights: np.ndarray) -> None:
        """f32[n, K] with weights f32[n]."""
        keep = weights > 0
        self.waiting.append(rows[keep] * np.sqrt(weights[keep, None]))
        self.count += int(keep.sum())
        if self.count >= self.total.shape[0]:
            self.flush()

    def flush(self) -> np.ndarray:
        """The gram of everything so far."""
        if self.count:
            x = np.concatenate(self.waiting)
            self.total += x.T @ x
        self.waiting, self.count = [], 0
        return self.total


def collect(
    program: Program,
    data: Sequence[Sequence[np.ndarray]],
    wanted: Sequence[Wanted],
    *,
    power: float = 0.5,
    full: bool = True,
    rows: int = 0,
    samples: Sequence[int] | None = None,
    gains: Gains | None = None,
    report: Callable[[float], None] = lambda share: None,
) -> dict[str, Moments]:
    """Moments by op name.

    Args:
        data: flat inputs, batch by batch.
        full: the whole gram; else its diagonal.
        power: of the mean squared gradient of a row, which is its weight; 0: all rows alike.
        rows: how many rows to keep, about.
        samples: the batches to look at, by number; default all.
        gains: the gradients that are known already; what is found is added.
        report: told the share of the data that is done.
    """
    copy = program.clone()
    ops = _outermost(copy)
    present = [w for w in wanted if w.name in ops]
    if not present:
        return {}
    names = [w.name for w in present]
    chosen = range(len(data)) if samples is None else samples
    gains = Gains() if gains is None else gains
    gradient = partial(sensitivity, program.clone(), present)  # passes edit this one later
    kept = -(-rows // len(chosen))
    grams = {w.name: _gram(ops[w.name], w) for w in present} if full else {}
    statistics: list[ir.Value] = []
    for w in present:
        statistics += _measure(copy, ops[w.name], w, full, kept, raw=grams.get(w.name) is not None)
    copy.return_values(statistics)
    run, draw = XlaExecutable(copy), np.random.default_rng(0)
    total: dict[str, Moments] = {}
    for done, i in enumerate(chosen, 1):
        inputs = data[i]
        weights = {name: copy.weights[_weight_name(name)] for name in names}
        found = gains.of(names, i, inputs, gradient) if power else {}
        for name, g in found.items():
            shape = weights[name].shape  # a convolution's groups read the same rows
            weights[name] = np.broadcast_to(g.reshape(-1, shape[1]), shape) ** F32(power)
        for name, counted in weights.items():
            run.bind(_weight_name(name), counted)
            run.bind(_rows_name(name), _draw(draw, counted, kept))
        results = run(*inputs)
        for j, name in enumerate(names):
            gram, *others = results[5 * j : 5 * j + 5]
            if (waiting := grams.get(name)) is not None:
                waiting.add(gram[0], weights[name][0])
                gram = np.zeros((1, 0))  # until the end
            new = _moments([gram, *others], weights[name])
            if not (np.isfinite(new.gram).all() and np.isfinite(new.sum).all()):
                raise UserError(f"NaN or infinity in sample {i} of the calibration data", op=name)
            total[name] = total[name].add(new) if name in total else new
        report(done / len(chosen))
    for name, waiting in grams.items():
        if waiting is not None:
            total[name] = replace(total[name], gram=waiting.flush())
    return total


def _gram(op: Any, w: Wanted) -> Gram | None:
    """Where a sample has fewer rows than columns: an addition would cost more than the product."""
    e = extent(op, w)
    if e.groups > 1 or e.rows > e.width:
        return None
    return Gram(np.zeros((e.width, e.width)), [])


def _moments(results: Sequence[np.ndarray], weights: Weights) -> Moments:
    *per_channel, rows = results
    gram, sums, low, high = (a[0] if len(weights) == 1 else a for a in per_channel)
    total = float(weights.sum(dtype=np.float64))
    share = np.full(len(rows), total / max(len(rows), 1))
    return Moments(gram.astype(np.float64), total, sums.astype(np.float64), low, high, rows, share)


def _draw(random: np.random.Generator, weights: Weights, count: int) -> np.ndarray:
    """Numbers of `count` rows, each with probability of its weight, one from each of as many
    stretches of equal weight."""
    total = np.cumsum(weights.reshape(-1), dtype=np.float64)
    at = (np.arange(count) + random.random(count)) / max(count, 1) * total[-1]
    return np.minimum(np.searchsorted(total, at, side="right"), weights.size - 1).astype(I32)


def _outermost(program: Program) -> dict[str | None, Any]:
    return {string_attr(op, NAME): op for op in program.body.operations}


def _weight_name(name: str) -> str:
    return f"{name}:importance"


def _rows_name(name: str) -> str:
    return f"{name}:kept"


def sensitivity(program: Program, wanted: Sequence[Wanted]) -> Sensitivity | None:
    """How much the rows of these ops matter; None, with a warning, where that has no answer."""
    ops = _outermost(program)
    values = {
        w.name: (ops[w.name].operation.results[0], other_axes(ops[w.name], w)) for w in wanted
    }
    try:
        return Sensitivity(program, values)
    except Unsupported as reason:
        LOG.warning("all rows of the calibration data count alike: %s", reason)
        return None


def _measure(
    program: Program, op: Any, w: Wanted, full: bool, kept: int, *, raw: bool
) -> list[ir.Value]:
    """gram (the rows if `raw`), weighted sum, low, high and some rows of one operand, behind
    `op`."""
    e = extent(op, w)
    shape = [e.groups, e.rows, e.width]
    weights = program.add_weight(_weight_name(w.name), np.ones([e.groups, e.rows], F32))
    index = program.add_weight(_rows_name(w.name), np.zeros(kept, I32))
    with at(op, after=True):
        x = rows_of(program, op, w)
        scaled = OPS.mul(x, OPS.broadcast(weights, shape, [0, 1]))
        zero = OPS.broadcast(OPS.constant(np.zeros((), F32)), shape[:2], [])
        counts = OPS.equal(OPS.maximum(weights, zero), zero)
        extremes = []
        for bound, reduce in ((np.inf, OPS.reduce_min), (-np.inf, OPS.reduce_max)):
            fill = OPS.broadcast(OPS.constant(np.array(bound, F32)), shape, [])
            counted = OPS.select(OPS.broadcast(counts, shape, [0, 1]), fill, x)
            extremes.append(OPS.reshape(reduce(counted, [1]), [e.groups, e.width]))
        gram = x
        if not raw:
            gram = OPS.gram(x, scaled) if full else OPS.sum(OPS.mul(x, scaled), [1])
        some = OPS.rows(OPS.reshape(x, [e.groups * e.rows, e.width]), index)
        return [gram, OPS.sum(scaled, [1]), *extremes, some]


__all__ = ["Moments", "Wanted", "collect", "sensitivity"]
