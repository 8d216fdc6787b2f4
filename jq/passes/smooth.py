"""Loud channels of an activation are made quieter, and the weights that read them louder.

    y = x W   ->   y = (x / s) (diag(s) W)

so that one scale serves all channels of x (Xiao et al., "SmoothQuant: Accurate and Efficient
Post-Training Quantization for Large Language Models", 2022). The factors s are powers of two:
multiplying by them is exact, and the float program computes what it did.

Where x is `n * gamma + beta` with constant vectors (a normalization), they are divided by s and
other readers of x multiply it back; elsewhere, x is divided in front of the products. The
factors of all products that read the same x are found together, see `factors`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jq.calibrate.moments import Moments, collect
from jq.ir import Program, at, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.constants import evaluate
from jq.ops.dot_general import DotGeneral
from jq.passes._inputs import NotApplicable, Use, find_use
from jq.passes.base import Pass, PassContext
from jq.plan import contractions, find_weight

LOG = logging.getLogger("jq")
OPS = StableHloOps()
STRENGTHS = np.arange(0, 1.01, 0.1)
SHARES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)  # of the channels that keep their size
ROUNDING = 0.2  # of plain rounding's error of the weights is what GPTQ leaves, about


@dataclass
class Group:
    """Products with weights that read the same value along the same axis."""

    value: ir.Value
    axis: int
    uses: list[tuple[Any, Use]] = field(default_factory=list)


@dataclass(frozen=True)
class Smooth(Pass):
    """Options:

    gain: how many times smaller the estimated error must be, else a group is left alone.
    insert: also divide where there are no vectors to divide, at the price of an op.
    power: see `jq.calibrate.moments.collect`.
    """

    name = "smooth"
    gain: float = 1.2
    insert: bool = True
    power: float = 0.5

    def run(self, program: Program, cx: PassContext) -> bool:
        if cx.settings.activations.format == "float":
            return False
        if not cx.data:
            LOG.warning("smooth skipped: it needs calibration data")
            return False
        groups = find_groups(program)
        wanted = [use.wanted for g in groups for _, use in g.uses]
        seen = collect(program, cx.data, wanted, power=self.power, full=False)
        changed = False
        for group in groups:
            moments = [seen[use.wanted.name] for _, use in group.uses]
            weights = [use.matrix.of(program.weights[use.matrix.name]) for _, use in group.uses]
            s, gain = factors(moments, weights, static=cx.settings.activations.mode == "static")
            if gain < self.gain:
                continue
            changed |= _apply(program, group, s, self.insert)
        if changed:
            program.drop_dead()
        return changed


def find_groups(program: Program) -> list[Group]:
    """Products of an activation with a weight of their own, by what they read."""
    groups: dict[Any, Group] = {}
    for op, rule in contractions(program):
        if not isinstance(rule, DotGeneral):
            continue
        sides = [find_weight(program, op.operands[r.index], r) for r in rule.roles(op)]
        if sum(side is not None for side in sides) != 1:
            continue
        index = 0 if sides[0] else 1
        try:
            use = find_use(program, op, index)
        except NotApplicable:
            continue
        value = op.operands[1 - index]
        readers = sum(1 for _ in program.weight(use.matrix.name).uses)
        if len(use.wanted.contracted) != 1 or readers != 1 or dtype_of(value) != np.float32:
            continue
        axis = use.wanted.contracted[0]
        groups.setdefault((value, axis), Group(value, axis)).uses.append((op, use))
    return list(groups.values())


def factors(
    moments: list[Moments], weights: list[np.ndarray], *, static: bool
) -> tuple[np.ndarray, float]:
    """Powers of two s[K] for one activation, and how many times they make the error smaller.

    The error of the products, for steps d_x of x / s and d_o of column o of diag(s) W, is

        d_x^2 / 12 * sum_c s_c^2 |W_c|^2  +  ROUNDING * sum_o d_o^2 / 12 * sum_c E[x_c^2] / s_c^2

    Candidates: s = r^a / w^(1-a) for a strength a (SmoothQuant's), and s = max(1, r / t), which
    only holds the loudest channels back; r and w are the extents of activations and weights.
    """
    low = np.min([m.low for m in moments], axis=0).astype(np.float64)
    high = np.max([m.high for m in moments], axis=0).astype(np.float64)
    total = sum(m.total for m in moments)
    mean = np.sum([m.sum for m in moments], axis=0) / total
    square = np.sum([m.gram for m in moments], axis=0) / total
    spread = 3 * np.sqrt(np.maximum(square - mean**2, 0))
    if not static:  # the range of a row, not of all rows
        low, high = np.maximum(low, mean - spread), np.minimum(high, mean + spread)
    w = np.concatenate(weights, axis=1).astype(np.float64)
    norm, largest = (w**2).sum(1), np.abs(w).max(1)
    extent = np.maximum(np.maximum(np.abs(low), np.abs(high)), 1e-12)
    largest = np.maximum(largest, 1e-12)

    def error(s: np.ndarray) -> float:
        step = (max(0.0, (high / s).max()) - min(0.0, (low / s).min())) / 255
        columns = np.abs(w * s[:, None]).max(0) / 127
        rounded = (columns**2).sum() * (square / s**2).sum()
        return float(step**2 * (s**2 * norm).sum() + ROUNDING * rounded)

    candidates = [extent**a / largest ** (1 - a) for a in STRENGTHS]
    candidates += [np.maximum(1.0, extent / t) for t in np.quantile(extent, SHARES)]
    ones = np.ones_like(extent)
    rounded = [_power_of_two(s / np.exp(np.log(s).mean())) for s in candidates]
    best = min([ones, *rounded], key=error)
    return best.astype(np.float32), error(ones) / max(error(best), 1e-300)


def _power_of_two(s: np.ndarray) -> np.ndarray:
    return np.asarray(2.0 ** np.clip(np.rint(np.log2(s)), -20, 20))


def _apply(program: Program, group: Group, s: np.ndarray, insert: bool) -> bool:
    vectors = _vectors(program, group)
    if vectors is None and not insert:
        return False
    if vectors is None:
        first = group.uses[0][0]
        with at(first):
            inverse = _along(program, group, 1 / s, f"{group.uses[0][1].matrix.name}:inverse")
            value = OPS.mul(group.value, inverse)
    else:
        value = _divided(program, group, s, vectors)
    for op, use in group.uses:
        op.operation.operands[use.wanted.operand] = value
        name = use.matrix.name
        old = program.weights[name]
        axis = use.matrix.order[0]
        shape = [-1 if a == axis else 1 for a in range(old.ndim)]
        program.weights[name] = (old * s.reshape(shape)).astype(old.dtype)
    return True


def _vectors(program: Program, group: Group) -> tuple[Any, np.ndarray, np.ndarray | None] | None:
    """What is multiplied, and the vectors: x = n * gamma [+ beta]; None when x is no such thing."""
    op, beta, value = group.value.owner, None, group.value
    if not isinstance(op, ir.Block) and op.operation.name == "stablehlo.add":
        for i in (0, 1):
            beta = _vector(program, op.operation.operands[i], group.axis)
            if beta is not None:
                value = op.operation.operands[1 - i]
                break
        if beta is None or sum(1 for _ in value.uses) != 1:
            return None
        op = value.owner
    if isinstance(op, ir.Block) or op.operation.name != "stablehlo.multiply":
        return None
    for i in (0, 1):
        gamma = _vector(program, op.operation.operands[i], group.axis)
        if gamma is not None:
            return op.operation.operands[1 - i], gamma, beta
    return None


def _vector(program: Program, value: ir.Value, axis: int) -> np.ndarray | None:
    """The one vector along `axis` that a constant value repeats."""
    array = evaluate(program, value)
    if array is None or array.dtype != np.float32:
        return None
    rows = np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis])
    return np.ascontiguousarray(rows[0]) if len(rows) and (rows == rows[:1]).all() else None


def _divided(
    program: Program,
    group: Group,
    s: np.ndarray,
    vectors: tuple[Any, np.ndarray, np.ndarray | None],
) -> ir.Value:
    """x / s by other vectors; every reader that is not of the group gets it times s."""
    source, gamma, beta = vectors
    old, name = group.value, group.uses[0][1].matrix.name
    readers = {op.operation for op, _ in group.uses}
    others = [use for use in old.uses if use.owner.operation not in readers]
    places = [(use.owner.operation, use.operand_number) for use in others]
    with at(old.owner, after=True):
        value = OPS.mul(source, _along(program, group, gamma / s, f"{name}:gamma"))
        if beta is not None:
            value = OPS.add(value, _along(program, group, beta / s, f"{name}:beta"))
        if places:
            back = OPS.mul(value, _along(program, group, s, f"{name}:factors"))
    for owner, number in places:
        owner.operands[number] = back
    return value


def _along(program: Program, group: Group, vector: np.ndarray, name: str) -> ir.Value:
    shape = shape_of(group.value)
    weight = program.add_weight(name, np.ascontiguousarray(vector, np.float32))
    return OPS.broadcast(weight, shape, [group.axis])
