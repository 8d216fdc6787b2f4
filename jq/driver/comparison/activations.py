"""The values that every op reads, and the share of them beyond the ends of static codes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from jq.driver.comparison.result import ActivationRange
from jq.formats.affine import affine_format
from jq.formats.blocks import full
from jq.ir import Op, Program, at, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.build import constant, reduce_sum
from jq.ir.hoist import Combine, hoist
from jq.planning.calibration.ranges import site
from jq.planning.decisions import OpPlan, TensorPlan
from jq.planning.operands import op_name

OPS = StableHloOps()
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
        ends = clip_range(self.plan)
        return ActivationRange(
            name=self.name,
            kind=self.plan.kind if self.plan else "float",
            low=self.low,
            high=self.high,
            clip_low=None if ends is None else ends[0],
            clip_high=None if ends is None else ends[1],
            saturation=1 - self.inside / self.count,
        )


def clip_range(p: TensorPlan | None) -> tuple[float, float] | None:
    """The smallest and the largest value that static codes stand for."""
    if p is None or p.parameters is None:
        return None
    fmt = affine_format(p.encoding.format)
    scale, zero = p.parameters
    low, high = (scale * (code - (zero or 0)) for code in fmt.limits(p.encoding))
    return low, high


def watched(op: Op, plan: OpPlan | None, weights: Sequence[int]) -> Iterator[tuple[int, Watched]]:
    """Operand number and record of every float operand that is not among `weights`."""
    for index, value in enumerate(op.operands):
        if index not in weights and dtype_of(value).kind in "fV":
            p = plan.operands.get(index) if plan else None
            yield index, Watched(site(op_name(op), index), p)


def measure(op: Op, index: int, seen: Watched) -> list[ir.Value]:
    """The statistics of an operand, computed in front of its op; see `STATISTICS`."""
    with at(op):
        return list(_statistics(op.operands[index], seen.plan))


def hoisted(program: Program, values: Sequence[ir.Value]) -> list[ir.Value]:
    """Statistics over all iterations and branches, in the outermost block."""
    return [
        hoist(value, program.body, neutral, combine)
        for value, (neutral, combine) in zip(values, STATISTICS, strict=True)
    ]


def _statistics(x: ir.Value, p: TensorPlan | None) -> Iterator[ir.Value]:
    shape = shape_of(x)
    axes, count = range(len(shape)), int(np.prod(shape))
    x = OPS.convert(x, np.float32)
    yield OPS.reshape(OPS.reduce_min(x, axes), ())
    yield OPS.reshape(OPS.reduce_max(x, axes), ())
    ends = clip_range(p)
    if p is None or p.parameters is None or ends is None:
        yield constant(np.array(count, np.int32))
    else:
        half = p.parameters[0] / 2  # what is rounded to the last code is not beyond it
        low, high = (full(OPS, v, shape, np.float32) for v in (ends[0] - half, ends[1] + half))
        same = OPS.equal(x, OPS.minimum(OPS.maximum(x, low), high))
        ones = OPS.convert(same, np.int32)
        yield OPS.reshape(reduce_sum(ones, list(axes)), ())
    yield constant(np.array(count, np.int32))
