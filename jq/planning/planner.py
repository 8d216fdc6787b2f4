"""Deciding on every contraction of a float program."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from jq.artifact.programs import kernels_of
from jq.base.errors import FormatError
from jq.formats import get_format
from jq.ir import Op, Program, dtype_of, kind_of
from jq.ir.build import SCOPE, string_attr
from jq.ir.ops.base import Contraction
from jq.ir.ops.lookup import contraction_names
from jq.ir.types import number_kind
from jq.planning.accumulators import check_products
from jq.planning.calibration.ranges import Ranges
from jq.planning.decisions import Declined, OpPlan, QuantPlan, TensorPlan
from jq.planning.edges import plan_edges
from jq.planning.encodings import run_of, stored_plan
from jq.planning.halves import asked, halves
from jq.planning.limits import OpShape, refusal
from jq.planning.operands import WeightUse, contractions, find_weight, made_of, op_name
from jq.planning.review import agree_on_weights, doubts
from jq.planning.tensors import TensorPlanner
from jq.target.rules import Rule, apply_overrides
from jq.target.settings import FLOAT, Settings
from jq.target.target import Target

COMPLEX = "it multiplies complex numbers, which no format holds"
TWO_ACTIVATIONS = "a product of two activations stays float (activation_products=float)"
COMPUTED_TABLE = "a lookup in what the model computes stays float (activation_products=float)"


def plan(
    program: Program,
    settings: Settings,
    target: Target,
    rules: tuple[Rule, ...] = (),
    ranges: Ranges | None = None,
    explicit: Collection[str] = (),
) -> QuantPlan:
    """Decides on every contraction of a float program.

    Args:
        rules: the first whose pattern matches an op's name, scope or type overrides `settings`.
        ranges: observed ranges, needed by static activations.
        explicit: settings that were asked for: what the target lacks of them is declined, of
            all others replaced by the nearest that it has."""
    tensors = TensorPlanner(program, target, ranges or Ranges())
    planner = _Planner(settings, rules, frozenset(explicit), tensors)
    ops = tuple(planner.decide(op, rule) for op, rule in contractions(program))
    ops, weights = agree_on_weights(ops)
    spent = planner.used | set(contraction_names())  # a type of op may well be missing
    unused = tuple(r.pattern for r in rules if r.pattern not in spent)
    activations = target.adapt(settings, explicit)[0].activations
    edges = plan_edges(program, tensors, activations, ops)
    overruled = tuple(pattern for pattern in unused if pattern in planner.matched)
    found = QuantPlan(ops, weights, unused, tuple(tensors.unranged), edges, overruled)
    seen = tensors.ranges
    return replace(found, doubts=doubts(found, seen), reference=seen.outputs)


@dataclass
class _Planner:
    settings: Settings
    rules: tuple[Rule, ...]
    explicit: frozenset[str]
    tensors: TensorPlanner
    used: set[str] = field(default_factory=set)  # patterns of rules that decided for an op
    matched: set[str] = field(default_factory=set)  # and of those that a rule before them overruled

    @property
    def target(self) -> Target:
        return self.tensors.target

    def decide(self, op: Op, rule: Contraction) -> OpPlan:
        name, kind = op_name(op), rule.op
        settings, note, why = self._settings_for(op, rule)
        try:
            operands = self._operands(op, rule, settings)
        except (Declined, FormatError) as reason:
            declined = self._declined(op, rule, settings, reason)
            half = self._half(op, rule, declined.operands, settings)
            told = "; ".join(filter(None, [declined.reason, why, half]))
            numbers = op.results[0], *(op.operands[r.index] for r in rule.roles(op))
            floats = all(number_kind(dtype_of(v)) == "f" for v in numbers)
            own = settings.float_type == "own" or declined.decision != "float" or not floats
            kind = "" if own else settings.float_type
            return replace(declined, reason=told, float_type=kind, halves=bool(half))
        integer = len(operands) == len(rule.roles(op)) > 1 and not _as_floats(operands)
        decision: Literal["integer", "weight-only"] = "integer" if integer else "weight-only"
        notes = [why, note, *(_fallback(p, settings) for p in operands.values())]
        rest = [r for r in rule.roles(op) if r.index not in operands]
        notes += [self.tensors.kept_float(op, r, settings.activations) for r in rest]
        new = {i for i, p in operands.items() if p.kind in ("dynamic", "static")}
        again = [r for r in rule.roles(op) if r.index in new]
        anew = "; ".join(filter(None, (self.tensors.anew(op, r, settings) for r in again)))
        half = "" if integer else self._half(op, rule, operands, settings)
        note = "; ".join(filter(None, [*notes, anew, half]))
        return OpPlan(name, kind, decision, operands, note=note, anew=anew, halves=bool(half))

    def _half(
        self, op: Op, rule: Contraction, operands: dict[int, TensorPlan], settings: Settings
    ) -> str:
        """The words for a stored weight that is multiplied in bfloat16; or empty."""
        roles, uses = rule.roles(op), self._uses(op, rule)
        if len(roles) != 2 or len(uses) != 1 or not operands.keys() >= uses.keys():
            return ""
        ((i, use),) = uses.items()
        told = asked(operands[i], [p for j, p in operands.items() if j != i], settings)
        kernel = told and halves(op, roles[i], operands[i].encoding, use, kernels_of(self.target))
        return told if kernel else ""

    def _declined(self, op: Op, rule: Contraction, settings: Settings, reason: Exception) -> OpPlan:
        """Float, but for weights that came quantized: they stay so whatever is said of the op."""
        uses = self._uses(op, rule)
        kept = {i: stored_plan(u) for i, u in uses.items() if u.stored}
        asked = settings.weights.format == FLOAT or rule.op not in settings.op_types
        floats = tuple(u.name for u in uses.values() if asked and not u.stored)
        decision: Literal["weight-only", "float"] = "weight-only" if kept else "float"
        help, wanted = getattr(reason, "help", ""), getattr(reason, "wanted", False)
        return OpPlan(
            op_name(op), rule.op, decision, kept, str(reason), help, wanted, float_weights=floats
        )

    def _settings_for(self, op: Op, rule: Contraction) -> tuple[Settings, str, str]:
        """Settings of one op as its target can carry them out, what was changed for that, and why
        there is a rule for it."""
        kind = OpShape(op).kind
        paths = [u.name for u in self._uses(op, rule).values()]
        names = (op_name(op), string_attr(op, SCOPE) or "", rule.op, *paths)
        found = [r for r in self.rules if r.matches(names)]
        if not found:
            return *self.target.adapt(self.settings, self.explicit, kind), ""
        self.used.add(found[0].pattern)
        self.matched.update(r.pattern for r in found)
        override, where = found[0].override, f"rule {found[0].pattern!r}"
        settings = apply_overrides(self.settings, override, where=where)
        adapted = self.target.adapt(settings, self.explicit | override.keys(), kind)
        return *adapted, found[0].reason

    def _operands(self, op: Op, rule: Contraction, settings: Settings) -> dict[int, TensorPlan]:
        """Plans by operand; `Declined` where the op stays float."""
        roles, weights, tensors = rule.roles(op), self._uses(op, rule), self.tensors
        self._check(op, rule, weights, settings)
        plans = {i: tensors.weight(u, settings, OpShape(op).kind) for i, u in weights.items()}
        known = {r.index: tensors.given(op, r, settings) for r in roles if r.index not in plans}
        floats = _no_integers(plans.values())
        plans |= {i: p for i, p in known.items() if p and not (p.kind == "dynamic" and floats)}
        rest = [r for r in roles if r.index not in plans]
        if not weights and rest and settings.activation_products == FLOAT:
            reason = TWO_ACTIVATIONS if len(roles) > 1 else COMPUTED_TABLE
            raise Declined(self._made_of_weights(op, rule) or reason, wanted=True)
        if rest and settings.activations.format != FLOAT:
            run = run_of(rule, plans, weights)
            for r in rest:
                if not tensors.kept_float(op, r, settings.activations):
                    plans[r.index] = tensors.activation(op, r, settings, run)
        if len(plans) == len(roles) > 1 and not _as_floats(plans):
            check_products(op, rule, plans, weights, tensors)
        elif (rest or _as_floats(plans)) and weights and not self.target.device.float_products:
            raise Declined(f"target {self.target.name} has no product with a float operand")
        if not plans:
            reasons = (tensors.kept_float(op, r, settings.activations) for r in roles)
            kept = "; ".join(filter(None, reasons))
            raise Declined(kept or "activations stay float in this pipeline", wanted=True)
        return plans

    def _check(
        self, op: Op, rule: Contraction, weights: dict[int, WeightUse], settings: Settings
    ) -> None:
        """Raises `Declined` for an op that stays float whatever formats its operands get."""
        roles, kind = rule.roles(op), OpShape(op).kind
        kinds = {number_kind(dtype_of(op.operands[r.index])) for r in roles}
        if kinds != {"f"}:
            raise Declined(COMPLEX if "c" in kinds else "already integer", wanted="c" not in kinds)
        if rule.op not in settings.op_types and not self._comes_quantized(op, rule):
            raise Declined(f"{rule.op} is not among op_types", wanted=True)
        if found := refusal(op, self.target):
            raise Declined(found.reason, found.help)
        if reason := rule.decline(op):
            raise Declined(reason)
        if len(weights) == len(roles) > 1:
            raise Declined("both operands are constant", wanted=True)
        if self.target.device.of(kind).constant_weights and not weights and len(roles) > 1:
            raise Declined(f"target {self.target.name} has no {kind} of two activations")

    def _uses(self, op: Op, rule: Contraction) -> dict[int, WeightUse]:
        """The weights behind operands."""
        program = self.tensors.program
        found = {r.index: find_weight(program, op.operands[r.index], r) for r in rule.roles(op)}
        return {i: use for i, use in found.items() if use is not None}

    def _made_of_weights(self, op: Op, rule: Contraction) -> str:
        """Says that an operand is no activation, but computed from weights or constants."""
        for role in rule.roles(op):
            value = op.operands[role.index]
            names = made_of(self.tensors.program, value)
            if names is not None:
                kind = kind_of(value.owner).removeprefix("stablehlo.")
                source = f"the weights {', '.join(sorted(names))}" if names else "constants"
                return (
                    f"an operand is computed from {source} ({kind}) and has no codes of its own:"
                    " it stays float (activation_products=float)"
                )
        return ""

    def _comes_quantized(self, op: Op, rule: Contraction) -> bool:
        """True if the model itself says how every operand is quantized: then that is kept."""
        roles = rule.roles(op)
        uses = self._uses(op, rule)
        return len(roles) > 1 and all(
            uses[r.index].stored if r.index in uses else self.tensors.given(op, r) for r in roles
        )


def _as_floats(plans: dict[int, TensorPlan]) -> bool:
    """True if an activation is rounded to what has no integers, and multiplied as floats."""
    return _no_integers(p for p in plans.values() if p.kind == "dynamic")


def _no_integers(plans: Iterable[TensorPlan]) -> bool:
    """True if one of these has a format without integers."""
    return any(get_format(p.encoding.format).integer_bits is None for p in plans)


def _fallback(plan: TensorPlan, settings: Settings) -> str:
    """Reason why a weight has another format than was asked for, where it has."""
    asked, enc = settings.weights.format, plan.encoding
    if plan.kind != "weight" or plan.stored or enc.format == asked:
        return ""
    return f"{plan.weight} is {enc.format}: {asked} is packed along its last axis, which is 1"
