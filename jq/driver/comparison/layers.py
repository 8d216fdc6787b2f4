"""Sources of the error inside a model: every contraction's result, quantized against float.

The quantized side is the `qdq` level: the same ops on tensors that went through their formats. Both
run on XLA. A loop's body computes a result several times; all of them count (up to
`jq.ir.stack.LIMIT`). An op in a loop's condition has no row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.base.progress import Progress, silent
from jq.driver.comparison.result import ActivationRange, ErrorSum, Inside, LayerError
from jq.formats import affine_format
from jq.frontends.source import Calls
from jq.ir import NAME, OPS, Program, at, dtype_of, ir, shape_of, string_attr
from jq.ir.hoist import can_leave
from jq.ir.ops import Contraction, rule_of
from jq.ir.oracle.xla import XlaExecutable
from jq.ir.stack import stacked
from jq.passes.isolated import Isolation
from jq.planning.calibration.ranges import site
from jq.planning.decisions import QuantPlan, TensorPlan
from jq.planning.operands import find_weight, op_name


@dataclass
class Watched:
    """An operand: its plan, and what was seen of it so far."""

    name: str
    plan: TensorPlan | None
    low: float = np.inf
    high: float = -np.inf
    inside: int = 0
    count: int = 0

    def add(self, x: np.ndarray) -> None:
        """Takes in what was read; NaN stands for what was not, in a branch or a loop."""
        x = x[~np.isnan(x)].astype(np.float32)
        self.low = float(x.min(initial=self.low))
        self.high = float(x.max(initial=self.high))
        low, high = clip_range(self.plan) or (-np.inf, np.inf)
        # What is rounded to the last code is not beyond it.
        half = self.plan.parameters[0] / 2 if self.plan and self.plan.parameters else 0.0
        self.inside += int(np.sum((x >= np.float32(low - half)) & (x <= np.float32(high + half))))
        self.count += x.size

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
        calls: flat inputs, one list a call."""
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
            record.add(results[2 * len(names) + k])
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
    """The float program with other outputs: each op's, its quantized copy's, each activation."""
    copy = reference.clone()
    isolation = Isolation(copy, quantized.weights)
    results: dict[str, tuple[ir.Value, ir.Value]] = {}
    read: list[tuple[Watched, ir.Value]] = []
    for name, op, rule in list(_contractions(copy)):
        if name not in names:
            continue
        p = plan.by_name.get(name)
        weights = {r.index for r in rule.roles(op) if find_weight(copy, op.operands[r.index], r)}
        for index, value in enumerate(op.operands):
            if index not in weights and dtype_of(value).kind in "fV":
                record = Watched(site(op_name(op), index), p.operands.get(index) if p else None)
                with at(op):  # an op of its own, see below
                    read.append((record, OPS.reshape(value, [*shape_of(value), 1])))
        results[name] = op.results[0], isolation.result(op, p) if p else op.results[0]
    # Only now: loops are rebuilt, and their results change identity.
    outside = [stacked(copy, v) for name in names for v in results[name]]
    outside += [stacked(copy, value, np.nan) for _, value in read]
    copy.return_values(outside)
    return copy, [record for record, _ in read]
