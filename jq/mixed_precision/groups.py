"""Groups of ops: one of the options in which the candidates differ is chosen for each.

Ops that read the same weight are a group, since it is stored once. Candidates that give a group the
same plan are one option, known by the first of them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jq.formats import Encoding, get_format
from jq.ir import NAME, Op, Program, dtype_of, shape_of, string_attr
from jq.ir.stack import trip_count
from jq.mixed_precision.candidates import Candidate
from jq.planning.decisions import OpPlan, QuantPlan
from jq.planning.operands import contractions, find_weight


@dataclass(frozen=True)
class Stored:
    """The stored form of a weight."""

    encoding: Encoding
    parts: Mapping[str, np.ndarray]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.parts.values())


@dataclass(frozen=True)
class Option:
    """One way to compute a group.

    Attributes:
        plans: of the group's ops, in their order.
        stored: what is stored of each weight; one that is missing stays float.
        stored_bytes: of the group's weights.
        work: bit operations: products times the bits of both operands.
        same: further candidates that come to the same for this group."""

    candidate: Candidate
    plans: tuple[OpPlan, ...]
    stored: Mapping[str, Stored]
    stored_bytes: int
    work: float
    same: tuple[Candidate, ...] = ()

    @property
    def name(self) -> str:
        return self.candidate.name


@dataclass(frozen=True)
class Group:
    """Ops that are decided together; `weights` are their float weights."""

    ops: tuple[str, ...]
    weights: tuple[str, ...]
    options: tuple[Option, ...]

    @property
    def name(self) -> str:
        return self.ops[0]

    def number(self, candidate: Candidate) -> int | None:
        """The number of the option that a candidate comes to, where there still is one."""
        fits = (i for i, o in enumerate(self.options) if candidate in (o.candidate, *o.same))
        return next(fits, None)


def stored_bytes(
    names: Iterable[str], stored: Mapping[str, Stored], floats: Mapping[str, np.ndarray]
) -> int:
    """Bytes of weights, of which those that are not `stored` are floats."""
    return sum((stored.get(name) or floats[name]).nbytes for name in names)


@dataclass(frozen=True)
class OpFacts:
    """Facts of an op that planning does not give.

    Attributes:
        products: multiplications in all iterations.
        bits: of a float operand.
        elements: of its activations, in all iterations.
        feature_map: whether it makes one."""

    name: str
    weights: tuple[str, ...]
    products: float
    bits: int
    elements: float
    feature_map: bool


def op_facts(program: Program) -> dict[str, OpFacts]:
    """Every op that can be quantized, by name, in program order."""
    facts = {}
    for op, rule in contractions(program):
        name = string_attr(op, NAME)
        if name is None:
            continue
        times, result = trips(program, op), op.results[0]
        read = [(op.operands[role.index], role) for role in rule.roles(op)]
        uses = [find_weight(program, value, role) for value, role in read]
        moving = [value for (value, _), use in zip(read, uses, strict=True) if use is None]
        products = rule.terms(op) * math.prod(shape_of(result)) if len(read) > 1 else 0
        facts[name] = OpFacts(
            name=name,
            weights=tuple(u.name for u in uses if u is not None and u.stored is None),
            products=float(times * products),
            bits=8 * dtype_of(result).itemsize,
            elements=float(times * sum(math.prod(shape_of(v)) for v in moving)),
            feature_map=rule.feature_map,
        )
    return facts


def trips(program: Program, op: Op) -> int:
    """Number of times that an op runs in a call; a loop counts once where its trips are unknown."""
    count, block = 1, op.operation.block
    while block != program.body:
        parent: Any = block.owner
        if parent.operation.name == "stablehlo.while":
            count *= trip_count(program, parent.opview) or 1
        block = parent.operation.block
    return count


def make_groups(
    program: Program,
    plans: Mapping[Candidate, QuantPlan],
    stored: Mapping[Candidate, Mapping[str, Stored]],
) -> list[Group]:
    """The groups that there is a choice for; `plans`: of the whole model, one a candidate."""
    facts = op_facts(program)
    by_op = {candidate: {op.name: op for op in plan.ops} for candidate, plan in plans.items()}
    groups = []
    for ops in _connected(facts.values()):
        weights = tuple(dict.fromkeys(w for name in ops for w in facts[name].weights))
        options: list[Option] = []
        for candidate in plans:
            own = tuple(by_op[candidate][name] for name in ops)
            equal = next((i for i, o in enumerate(options) if _same(own, o.plans)), None)
            if equal is not None:
                known = options[equal]
                options[equal] = replace(known, same=(*known.same, candidate))
            else:
                kept = {w: stored[candidate][w] for w in weights if w in stored[candidate]}
                size = stored_bytes(weights, kept, program.weights)
                work = sum(bit_operations(facts[p.name], p) for p in own)
                options.append(Option(candidate, own, kept, size, work))
        if len(options) > 1:
            groups.append(Group(tuple(ops), weights, tuple(options)))
    return groups


def _connected(facts: Iterable[OpFacts]) -> list[list[str]]:
    """Ops in sets that share weights, both in program order."""
    groups: list[tuple[list[str], set[str]]] = []
    for fact in facts:
        joined, weights = [fact.name], set(fact.weights)
        for other in [g for g in groups if g[1] & weights]:
            groups.remove(other)
            joined, weights = other[0] + joined, weights | other[1]
        groups.append((joined, weights))
    return [ops for ops, _ in groups]


def _same(a: Sequence[OpPlan], b: Sequence[OpPlan]) -> bool:
    decisions = ([(p.decision, p.operands, p.float_type) for p in plans] for plans in (a, b))
    return next(decisions) == next(decisions)


def bit_operations(fact: OpFacts, plan: OpPlan) -> float:
    if plan.decision == "integer":
        formats = [get_format(p.encoding.format) for p in plan.operands.values()]
        return fact.products * math.prod(f.integer_bits or 0 for f in formats)  # never None here
    bits = 8 * np.dtype(plan.float_type).itemsize if plan.float_type else fact.bits
    return fact.products * bits**2
