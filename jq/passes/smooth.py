"""Loud channels of an activation are made quieter, and the weights that read them louder.

    y = x W   ->   y = (x / s) (diag(s) W)

so that one scale serves all channels of x (Xiao et al., "SmoothQuant: Accurate and Efficient
Post-Training Quantization for Large Language Models", 2022). The factors s are powers of two:
multiplying by them is exact, and the float program computes what it did.

Where x is `n * gamma + beta` with constant vectors (a normalization), they are divided by s and
other readers of x multiply it back; where x is linear in weights, they are; elsewhere, x is divided
in front of the products. The factors of all products that read the same x are found together, see
`factors`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jq.calibrate.moments import collect
from jq.errors import UserError
from jq.ir import Program, at, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.constants import evaluate
from jq.ops.dot_general import DotGeneral
from jq.passes._factors import Product, factors
from jq.passes._inputs import NotApplicable, Use, find_use
from jq.passes._producers import Edits, edits_for
from jq.passes.base import PassContext, Recovery
from jq.plan import contractions, find_weight
from jq.settings import FLOAT

LOG = logging.getLogger("jq")
OPS = StableHloOps()
ROWS = 512  # of each activation that are looked at


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


@dataclass(frozen=True)
class Smooth(Recovery):
    """Options:

    gain: how many times smaller the estimated error must be, else a group is left alone.
    insert: the same, where that takes an op more in the program; 0: never.
    rounding: see `factors`.
    """

    name = "smooth"
    gain: float = 1.2
    insert: float = 3.0
    rounding: float = 1.0

    def wanted(self, cx: PassContext) -> bool:
        return cx.settings.activations.format != FLOAT

    def known(self, cx: PassContext) -> bool:
        return cx.known_smoothing is not None

    def recover(self, program: Program, cx: PassContext) -> bool:
        groups = {group.name: group for group in find_groups(program)}
        if cx.known_smoothing is None:
            cx.smoothing.update(self._search(program, cx, groups))
        else:
            cx.smoothing.update(cx.known_smoothing)
        for name, s in cx.smoothing.items():
            if name not in groups or groups[name].width != len(s):
                raise UserError(f"the ranges are of another program: it smooths {name!r}")
            _apply(program, groups[name], s)
        if cx.smoothing:
            program.drop_dead()
        return bool(cx.smoothing)

    def _search(
        self, program: Program, cx: PassContext, groups: Mapping[str, Group]
    ) -> dict[str, np.ndarray]:
        """The factors of those groups where they are worth it."""
        assert cx.data
        wanted = [use.wanted for g in groups.values() for _, use in g.uses]
        seen = collect(program, cx.data, wanted, power=1, full=False, rows=ROWS, report=cx.report)
        found: dict[str, np.ndarray] = {}
        for name, group in groups.items():
            products = [
                Product(
                    seen[use.wanted.name],
                    use.matrix.of(np.asarray(program.weights[use.matrix.name]).astype(np.float64)),
                )
                for _, use in group.uses
            ]
            static = cx.settings.activations.mode == "static"
            s, gain = factors(products, static=static, rounding=self.rounding)
            LOG.info("smooth: %s: error / %.2f", name, gain)
            if gain >= (self.gain if _free(program, group, s) else self.insert or np.inf):
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
        if len(use.wanted.contracted) != 1 or readers != 1 or dtype_of(value) != np.float32:
            continue
        axis = use.wanted.contracted[0]
        groups.setdefault((value, axis), Group(value, axis)).uses.append((op, use))
    return list(groups.values())


def _apply(program: Program, group: Group, s: np.ndarray) -> None:
    vectors, edits = _vectors(program, group), _edits(program, group, s)
    if vectors is not None:
        value = _divided(program, group, s, vectors)
    elif edits is not None:
        edits.apply(group.name)
        value = group.value
    else:
        with at(group.uses[0][0]):
            value = OPS.mul(group.value, _along(program, group, 1 / s, f"{group.name}:inverse"))
    for op, use in group.uses:
        op.operation.operands[use.wanted.operand] = value
        name = use.matrix.name
        old = np.asarray(program.weights[name])
        axis = use.matrix.order[0]
        shape = [-1 if a == axis else 1 for a in range(old.ndim)]
        program.weights[name] = (old * s.reshape(shape)).astype(old.dtype)


def _free(program: Program, group: Group, s: np.ndarray) -> bool:
    """Whether the division costs nothing: vectors or weights take it."""
    return bool(_vectors(program, group) or _edits(program, group, s))


def _edits(program: Program, group: Group, s: np.ndarray) -> Edits | None:
    shape = [-1 if a == group.axis else 1 for a in range(len(shape_of(group.value)))]
    return edits_for(program, group.value, (1 / s).reshape(shape), len(group.uses))


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
    old, name = group.value, group.name
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
