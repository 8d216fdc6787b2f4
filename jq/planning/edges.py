"""Parameters of the tensors between regions, where ops want the same ones for several tensors.

Ops that move or choose elements (`jq.ir.ops.selection`) work on codes when all their operands and
the result have one scale and zero point. Tensors that such ops join are a group; its range is that
of all its edges, forwards and backwards. An edge whose step would more than double leaves the
group: it keeps its own range, and one integer rescale stands where the parameters change."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from jq.formats import get_format, is_affine
from jq.ir import Op, Program, ir, kind_of, maker, shape_of
from jq.ir.ops.lookup import is_product
from jq.ir.ops.selection import elements
from jq.ir.quantized.edges import edge_name, is_carried, is_wide
from jq.ir.values import handed_on
from jq.planning.calibration.observer import Range
from jq.planning.calibration.ranges import site
from jq.planning.decisions import Declined, OpPlan, TensorPlan
from jq.planning.operands import op_name
from jq.planning.tensors import TensorPlanner
from jq.target.settings import FLOAT, ActivationSettings

COMPARE = "stablehlo.compare"
COARSER = 2.0  # how many times larger a step may become for the sake of equal parameters


@dataclass(frozen=True)
class Edge:
    """An edge of the program, how it is to be quantized, and what was seen of it."""

    op: Op
    name: str
    settings: ActivationSettings
    seen: Range
    tied: bool = False


def plan_edges(
    program: Program, tensors: TensorPlanner, settings: ActivationSettings, ops: Sequence[OpPlan]
) -> dict[str, TensorPlan]:
    """The parameters of every edge by name; none for edges that nobody reads as codes."""
    plans = {op.name: op for op in ops}
    groups, members = Groups(program), dict[tuple[Any, str], list[Edge]]()
    for op in program.walk():
        name = edge_name(op)
        wanted = None if name is None else _settings(op, tensors, settings, plans)
        if name is None or wanted is None:
            continue
        try:
            seen = tensors.seen(site(name, 0), wanted)
        except Declined:
            continue
        readers = [kind_of(use.owner) for use in op.operation.results[0].uses]
        found = Edge(op, name, wanted, seen, is_carried(op) or COMPARE in readers)
        key = groups.find(op.operation.operands[0]), wanted.format
        members.setdefault(key, []).append(found)
    return {
        edge.name: tensors.fixed(merged, edge.settings, shape_of(edge.op.operation.operands[0]))
        for group in members.values()
        for merged, cluster in clusters(group)
        for edge in cluster
    }


def clusters(group: Sequence[Edge]) -> list[tuple[Range, list[Edge]]]:
    """Edges with the range that they share: the widest first, then those that can live with it.

    What loops and branches hand on has no choice, nor have tensors that are compared: what is equal
    has equal codes."""
    tied = [edge for edge in group if edge.tied]
    found = [(reduce(Range.merge, (e.seen for e in tied)), tied)] if tied else []
    rest = [edge for edge in group if not edge.tied]
    for edge in sorted(rest, key=lambda e: -_extent(e.seen, e.settings)):
        for i, (shared, those) in enumerate(found):
            merged = shared.merge(edge.seen)
            own = _extent(edge.seen, edge.settings)
            if _extent(merged, edge.settings) <= COARSER * own:
                found[i] = merged, [*those, edge]
                break
        else:
            found.append((edge.seen, [edge]))
    return found


def _extent(r: Range, s: ActivationSettings) -> float:
    """The extent of a range, which its steps are proportional to."""
    if s.scheme == "symmetric":
        return max(abs(r.low), abs(r.high))
    return max(0.0, r.high) - min(0.0, r.low)


def _settings(
    op: Op, tensors: TensorPlanner, s: ActivationSettings, plans: dict[str, OpPlan]
) -> ActivationSettings | None:
    """The settings of an edge: for the contraction that wants most bits; None for none. A device
    may have no zero points of its format."""
    if (format := _format(op, s, plans)) is None:
        return None
    offered = tensors.target.activation_schemes(format)
    scheme = s.scheme if s.scheme in offered or not offered else offered[0]
    return s.model_copy(update={"format": format, "scheme": scheme})


def _format(op: Op, s: ActivationSettings, plans: dict[str, OpPlan]) -> str | None:
    if is_wide(op):
        return s.residual or s.format
    formats = []
    for use in op.operation.results[0].uses:
        if not is_product(use.owner):
            formats.append(s.format)
            continue
        plan = plans.get(op_name(use.owner))
        operand = plan.operands.get(use.operand_number) if plan else None
        if operand is None or plan is None or plan.decision != "integer":
            continue
        if is_affine(operand.encoding.format):  # blocks have scales of their own, found anew
            formats.append(operand.encoding.format)
    if not formats or s.format == FLOAT:
        return None
    return max(formats, key=lambda name: get_format(name).integer_bits or 0)


class Groups:
    """Union-find of the values that ops on elements join, and loops and branches hand on."""

    def __init__(self, program: Program) -> None:
        self.parent: dict[ir.Value, ir.Value] = {}
        for op in program.walk():
            for target, source in handed_on(op):
                made = maker(source)
                behind = made.operands[0] if made and edge_name(made) else source
                self._join(behind, target)
            if len(op.operation.results) == 1:
                for i in elements(program, op):
                    self._join(op.operation.operands[i], op.operation.results[0])

    def find(self, value: ir.Value) -> ir.Value:
        while value in self.parent:
            value = self.parent[value]
        return value

    def _join(self, a: ir.Value, b: ir.Value) -> None:
        a, b = self.find(a), self.find(b)
        if a != b:
            self.parent[b] = a
