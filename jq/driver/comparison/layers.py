"""Sources of the error inside a model: every contraction's result, quantized against float.

The quantized side is the `qdq` level: the same ops on tensors that went through their formats.
Both run on XLA. A loop's body computes a result several times; all of them count (up to
`jq.ir.stack.LIMIT`). An op in a loop's condition has no row.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.base.progress import Progress, silent
from jq.driver.comparison.result import ActivationRange, ErrorSum, Inside, LayerError
from jq.formats.affine import affine_format
from jq.formats.arrays import clip
from jq.ir import OPS, Program, at, dtype_of, ir, shape_of
from jq.ir.build import NAME, string_attr
from jq.ir.hoist import Combine, can_leave, hoist
from jq.ir.ops import Contraction, rule_of
from jq.ir.oracle.xla import XlaExecutable
from jq.ir.stack import stacked
from jq.passes.isolated import Isolation
from jq.planning.calibration.ranges import site
from jq.planning.decisions import QuantPlan, TensorPlan
from jq.planning.operands import find_weight, op_name

# The values that every op reads, and the share of them beyond the ends of static codes.
Step = tuple[np.ndarray, Combine]  # neutral element, combination
STATISTICS: tuple[Step, ...] = (
    (np.array(np.inf, np.float32), OPS.minimum),
    (np.array(-np.inf, np.float32), OPS.maximum),
    (np.array(0, np.int32), OPS.add),  # elements inside of the ends
    (np.array(0, np.int32), OPS.add),  # all elements
)


@dataclass
class Watched:
    """An operand: its plan, and what was seen of it so far."""

    name: str
    plan: TensorPlan | None
    low: float = np.inf
    high: float = -np.inf
    inside: int = 0
    count: int = 0

    def add(self, statistics: Sequence[np.ndarray]) -> None:
        low, high, inside, count = statistics
        self.low, self.high = min(self.low, float(low)), max(self.high, float(high))
        self.inside += int(inside)
        self.count += int(count)

    def result(self) -> ActivationRange:
        kind = self.plan.kind if self.plan else "float"
        low, high = clip_range(self.plan) or (None, None)
        outside = 1 - self.inside / self.count
        return ActivationRange(self.name, kind, self.low, self.high, low, high, outside)


def clip_range(p: TensorPlan | None) -> tuple[float, float] | None:
    """The smallest and the largest value that static codes stand for."""
    if p is None or p.parameters is None:
        return None
    fmt = affine_format(p.encoding.format)
    scale, zero = p.parameters
    low, high = (scale * (code - (zero or 0)) for code in fmt.limits(p.encoding))
    return low, high


def _statistics(x: ir.Value, p: TensorPlan | None) -> Iterator[ir.Value]:
    """Those of `STATISTICS` of a value, at the current insertion point."""
    shape = shape_of(x)
    axes, count = range(len(shape)), int(np.prod(shape))
    x = OPS.convert(x, np.float32)
    yield OPS.reshape(OPS.reduce_min(x, axes), ())
    yield OPS.reshape(OPS.reduce_max(x, axes), ())
    ends = clip_range(p)
    if p is None or p.parameters is None or ends is None:
        yield OPS.constant(np.array(count, np.int32))
    else:
        half = p.parameters[0] / 2  # what is rounded to the last code is not beyond it
        same = OPS.equal(x, clip(OPS, x, float(ends[0] - half), float(ends[1] + half)))
        yield OPS.reduce_sum(OPS.convert(same, np.int32), axes, keep=False)
    yield OPS.constant(np.array(count, np.int32))


Calls = Sequence[Sequence[np.ndarray]]


def compare_layers(
    reference: Program,
    quantized: Program,
    plan: QuantPlan,
    calls: Calls,
    progress: Progress = silent,
) -> Inside:
    """The error of every contraction that both programs have, and the range of what it reads.

    Args:
        reference, quantized: the `float` and the `qdq` level of one model.
        plan: what the second was made by.
        calls: flat inputs, one list a call.
    """
    kinds = {name: rule.op for name, _, rule in _contractions(reference)}
    there = {name for name, _, _ in _contractions(quantized)}
    names = [name for name in kinds if name in there]
    both, seen = _instrumented(reference, quantized, plan, names)
    copy = quantized.clone()
    made = {name: op.results[0] for name, op, _ in _contractions(copy)}
    copy.return_values([stacked(copy, made[name]) for name in names])
    programs = XlaExecutable(both), XlaExecutable(copy)
    errors = {name: (ErrorSum(), ErrorSum()) for name in names}
    for i, arrays in enumerate(calls):
        progress("compare layers", i / len(calls))
        results, accumulated = (run(*arrays) for run in programs)
        for k, name in enumerate(names):
            r, isolated = results[2 * k : 2 * k + 2]
            errors[name][0].add(r, accumulated[k])
            errors[name][1].add(r, isolated)
        for k, record in enumerate(seen):
            first = 2 * len(names) + k * len(STATISTICS)
            record.add(results[first : first + len(STATISTICS)])
    figures = {
        name: [x for e in both for x in (e.sqnr_db, e.cosine, e.max_abs_error)]
        for name, both in errors.items()
    }
    layers = tuple(LayerError(name, kinds[name], *figures[name]) for name in names)
    return Inside(layers, tuple(record.result() for record in seen if record.count))


def _contractions(program: Program) -> Iterator[tuple[str, Any, Contraction]]:
    """Name, op and rule of every contraction whose result is float and can be brought out."""
    for op in program.walk():
        rule, name = rule_of(op), string_attr(op, NAME)
        if not isinstance(rule, Contraction) or not name:
            continue
        if dtype_of(op.results[0]).kind in "fV" and can_leave(op, program.body):
            yield name, op, rule


def _instrumented(
    reference: Program, quantized: Program, plan: QuantPlan, names: Sequence[str]
) -> tuple[Program, list[Watched]]:
    """The float program with other results: of each op its own and that of its quantized copy,
    then the statistics of each activation."""
    copy, plans = reference.clone(), {op.name: op for op in plan.ops}
    isolation = Isolation(copy, quantized.weights)
    results: dict[str, tuple[ir.Value, ir.Value]] = {}
    measured: list[tuple[Watched, list[ir.Value]]] = []
    for name, op, rule in list(_contractions(copy)):
        if name not in names:
            continue
        p = plans.get(name)
        weights = {r.index for r in rule.roles(op) if find_weight(copy, op.operands[r.index], r)}
        for index, value in enumerate(op.operands):
            if index not in weights and dtype_of(value).kind in "fV":
                record = Watched(site(op_name(op), index), p.operands.get(index) if p else None)
                with at(op):
                    measured.append((record, list(_statistics(value, record.plan))))
        results[name] = op.results[0], isolation.result(op, p) if p else op.results[0]
    # Only now: loops are rebuilt, and their results change identity.
    outside = [stacked(copy, v) for name in names for v in results[name]]
    outside += [
        hoist(value, copy.body, neutral, combine)
        for _, values in measured
        for value, (neutral, combine) in zip(values, STATISTICS, strict=True)
    ]
    copy.return_values(outside)
    return copy, [record for record, _ in measured]
