"""Outlier channels of activations are scaled down, their weights up (SmoothQuant).

    y = x W   ->   y = (x / s) (diag(s) W)

so that one scale serves all channels of x (Xiao et al., "SmoothQuant: Accurate and Efficient
Post-Training Quantization for Large Language Models", 2022). The factors s are powers of two:
multiplying by them is exact, and the float program computes what it did.

Where x is linear in weights, they are divided; elsewhere x is, in front of the products: kernels
that quantize x take the factors along. Those of all products that read the same x are found
together, see `factors`.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jq.base.errors import UserError
from jq.formats import get_format
from jq.ir import Program, at, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.decisions import SMOOTHING, decide
from jq.ir.ops.rules.dot_general import DotGeneral
from jq.passes.base import PassContext, Recovery
from jq.passes.recovery._factors import Weighted, factors
from jq.passes.recovery._inputs import NotApplicable, Use, find_use, spread, uses_in
from jq.passes.recovery._producers import Edits, edits_for
from jq.planning.moments.collect import collect
from jq.planning.operands import contractions, find_weight
from jq.target.settings import FLOAT

LOG = logging.getLogger("jq")
OPS = StableHloOps()
EQUALIZED = "equalize "  # in front of the names of what another pass has scaled
ROWS = 512  # of each activation that are looked at
SAMPLES = {"dynamic": 16, "static": 64}  # batches that are looked at: static ranges are extremes


@dataclass
class Group:
    """Products with weights that read the same value along the same axis."""

    value: ir.Value
    axis: int
    uses: list[tuple[Any, Use]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The first weight's."""
        return self.uses[0][1].matrix.name

    @property
    def width(self) -> int:
        return shape_of(self.value)[self.axis]


class Smooth(Recovery):
    """Options:

    gain: how many times smaller the estimated error must be, else a group is left alone.
    rounding: see `factors`.
    """

    optional = False
    gain: float = 1.2
    rounding: float = 1.0

    def wanted(self, program: Program, cx: PassContext) -> bool:
        return cx.settings.activations.format != FLOAT

    def known(self, cx: PassContext) -> bool:
        return cx.known_smoothing is not None

    def recover(self, program: Program, cx: PassContext) -> bool:
        groups = {group.name: group for group in find_groups(program)}
        found = cx.known_smoothing
        if found is None:
            chosen = cx.settings.activations
            what = f"{self!r} {chosen.format} {chosen.mode} {list(groups)}"
            found = cx.found(program, what, lambda: self._search(program, cx, groups))
        found = {name: s for name, s in found.items() if not name.startswith(EQUALIZED)}
        for name, s in found.items():
            if name not in groups or groups[name].width != len(s):
                raise UserError(f"the ranges are of another program: it smooths {name!r}")
            _apply(program, groups[name], s)
        if found:
            program.drop_dead()
            decide(program, {name: {SMOOTHING: np.log2(s)} for name, s in found.items()})
        return bool(found)

    def _search(
        self, program: Program, cx: PassContext, groups: Mapping[str, Group]
    ) -> dict[str, np.ndarray]:
        """The factors of those groups where they are worth it."""
        assert cx.data
        wanted = [use.wanted for g in groups.values() for _, use in g.uses]
        mode = cx.settings.activations.mode
        samples = spread(len(cx.data), SAMPLES[mode])
        seen = collect(
            program,
            cx.data,
            wanted,
            power=1,
            full=False,
            rows=ROWS if mode == "dynamic" else 0,
            samples=samples,
            gains=cx.gains,
            others=[use.wanted for use in uses_in(program)],
            report=cx.report,
        )
        found: dict[str, np.ndarray] = {}
        for name, group in groups.items():
            products = [
                Weighted(
                    seen[use.wanted.name],
                    use.matrix.of(np.asarray(program.weights[use.matrix.name]).astype(np.float32)),
                )
                for _, use in group.uses
            ]
            s, gain = factors(
                products,
                static=mode == "static",
                rounding=self.rounding,
                count=len(samples) * math.prod(shape_of(group.value)) // group.width,
                bits=get_format(cx.settings.activations.format).integer_bits or 8,
            )
            LOG.info("smooth: %s: error / %.2f", name, gain)
            if gain >= self.gain:
                found[name] = s
        return found


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
        plain = len(use.wanted.contracted) == use.matrix.groups == readers == 1
        if not plain or dtype_of(value) != np.float32:
            continue
        axis = use.wanted.contracted[0]
        groups.setdefault((value, axis), Group(value, axis)).uses.append((op, use))
    return list(groups.values())


def _apply(program: Program, group: Group, s: np.ndarray) -> None:
    edits, value = _edits(program, group, s), group.value
    if edits is not None:
        edits.apply(group.name)
    else:
        with at(group.uses[0][0]):
            inverse = program.add_weight(f"{group.name}:inverse", np.float32(1) / s)
            value = OPS.mul(value, OPS.broadcast(inverse, shape_of(value), [group.axis]))
    for op, use in group.uses:
        op.operation.operands[use.wanted.operand] = value
        name = use.matrix.name
        old = np.asarray(program.weights[name])
        axis = use.matrix.order[0]
        shape = [-1 if a == axis else 1 for a in range(old.ndim)]
        program.weights[name] = (old * s.reshape(shape)).astype(old.dtype)


def _edits(program: Program, group: Group, s: np.ndarray) -> Edits | None:
    shape = [-1 if a == group.axis else 1 for a in range(len(shape_of(group.value)))]
    return edits_for(program, group.value, (1 / s).reshape(shape), len(group.uses))
