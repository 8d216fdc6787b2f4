"""Estimated time of an option on a target: a choice by measured times would be another each time.

    cycles of an op = max(multiply-adds / rate, bytes of its weights / rate of memory)
                      + elements of its activations * cycles for an element

Where a target states its own rates (`[hardware]`), they bound an op as in `jq.estimate`
(`Hardware.bounds`). Else rates follow from the instruction set of its kernels: products that no
kernel takes are far slower, which is why the program of each candidate is made once, to see which
of its products have one. What an element takes was fitted to `digits_cnn`, `minilm` and `mobilenet`
in the fixed pipelines on one processor (AMD EPYC, Zen 5): only ratios matter."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jq.artifact.programs import kernels_of
from jq.base.errors import JqError, UserError
from jq.driver.audit.op_table import op_table
from jq.driver.job import Job
from jq.formats import get_format
from jq.ir import shape_of
from jq.ir.ops import Contraction, Movement, rule_of
from jq.kernels import PairConvolution, PairGemm, get_isa
from jq.mixed_precision.candidates import Candidate
from jq.mixed_precision.costs import Resource
from jq.mixed_precision.groups import Group, Option, Stored, op_facts, stored_bytes, trips
from jq.mixed_precision.problem import Problem, with_rules
from jq.passes.pipeline import rewrite
from jq.planning.decisions import OpPlan, QuantPlan, TensorPlan
from jq.target import FLOAT, Rule, Target

MEMORY = 16.0  # bytes of weights a cycle
TILES = 4.0  # times the products of vectors that matrix tiles reach
# Cycles for an element of an activation: in a product of matrices, in a convolution.
STATIC, DYNAMIC, FLOATS = (0.1, 0.2), (0.4, 3.0), (0.3, 2.0)
BY_PAIRS = tuple(f"{kind.family}_" for kind in (PairGemm, PairConvolution))
DIGITS = 2  # products of a kernel, where an operand has codes of 16 bits: one a digit of 8
REST = 0.1  # cycles for an element of a result of anything else


@dataclass(frozen=True)
class Rates:
    """Multiply-adds a cycle.

    Attributes:
        kernel: of 8-bit codes in a kernel of ours; without any, and of floats: what IREE emits.
        pairs: of codes in a kernel of pairs."""

    kernel: float
    plain: float
    floats: float
    pairs: float = 0.0

    @staticmethod
    def of(target: Target) -> "Rates":
        name = kernels_of(target)
        if name == "none":  # nothing is known but that codes of 8 bits take a quarter of the room
            return Rates(2.0, 2.0, 1.0)
        isa = get_isa(name)
        vector = isa.lanes * isa.dot_rate
        kernel = isa.macs * (TILES if isa.tiles else 1.0)
        return Rates(0.9 * kernel, vector / 8, 0.65 * vector, 0.9 * isa.pair_macs)

    def rate(self, plan: OpPlan, kernel: str | None) -> float:
        """The rate of an op in a kernel, if in any."""
        if plan.decision != "integer":
            return self.floats
        if kernel is None:
            return self.plain
        found = self.pairs if kernel.startswith(BY_PAIRS) else self.kernel
        return found / (DIGITS if any(map(_wide, plan.operands.values())) else 1)


def estimated_cycles(problem: Problem, speed: "Speed | None" = None) -> Resource:
    """Cycles of a call: of each option, infinite where the target has no such product, and of all
    that is no contraction."""
    speed = speed or Speed(problem.job, problem.plans)
    options = [[speed.of(o) for o in g.options] for g in problem.groups]
    rest, program, hardware = 0.0, problem.job.program, problem.job.target.hardware
    for op in program.walk():
        if op.results and not isinstance(rule_of(op), Contraction | Movement):
            rest += sum(math.prod(shape_of(v)) for v in op.results) * trips(program, op)
    rest = rest / hardware.elements_per_cycle if hardware else REST * rest
    return Resource("cycles", options, rest)


def estimated_shares(problem: Problem) -> Resource:
    """`estimated_cycles` over those of the model with all groups in float, or of the base pipeline
    where the target states its rates: such a device may have no floats.

    Raises:
        UserError: an option needs products whose rate the target does not state."""
    job, speed = problem.job, Speed(problem.job, problem.plans)
    cycles, plan, stored = estimated_cycles(problem, speed), problem.base, problem.base_stored
    for group, own in zip(problem.groups, cycles.options, strict=True):
        for op in group.options[own.index(math.inf)].plans if math.inf in own else ():
            if speed.products(op) == math.inf:
                told = f"target {job.target.name} states no rate of {_pairs(op)[0]}"
                raise UserError(told, op=op.name)
    if not job.target.hardware:
        rules = [Rule(pattern="*", override={"format": FLOAT})]
        plan, stored = with_rules(job, rules).plan(job.ranges), {}
    fixed = cycles.fixed + speed.outside(problem)
    whole = fixed + sum(speed.planned(group, plan, stored) for group in problem.groups)
    options = [[each / whole for each in own] for own in cycles.options]
    return Resource("cycles", options, fixed / whole)


class Speed:
    """Estimated cycles of groups of ops."""

    def __init__(self, job: Job, plans: Mapping[Candidate, QuantPlan]) -> None:
        self.hardware = job.target.hardware
        self.rates = None if self.hardware else Rates.of(job.target)
        self._facts = op_facts(job.program)
        self._kernels = {c: kernels(job, p) if self.rates else {} for c, p in plans.items()}
        self._weights = job.program.weights

    def of(self, option: Option) -> float:
        return self._cycles(option.plans, option.stored_bytes, self._kernels[option.candidate])

    def planned(self, group: Group, plan: QuantPlan, stored: Mapping[str, Stored]) -> float:
        """Cycles of a group in a plan without kernels; weights that are not `stored` are floats."""
        size = stored_bytes(group.weights, stored, self._weights)
        return self._cycles([plan.by_name[name] for name in group.ops], size, {})

    def outside(self, problem: Problem) -> float:
        """Cycles of the ops that there is no choice for: all candidates plan them alike."""
        ours = {name for g in problem.groups for name in g.ops}
        others = [f for f in self._facts.values() if f.name not in ours]
        names = {w for f in others for w in f.weights}
        stored = stored_bytes(names, problem.base_stored, self._weights)
        there = {op: kernel for each in self._kernels.values() for op, kernel in each.items()}
        plans = problem.base.by_name
        return self._cycles([plans[f.name] for f in others if f.name in plans], stored, there)

    def _cycles(self, plans: Sequence[OpPlan], stored: int, there: Mapping[str, str]) -> float:
        """Cycles of ops whose weights take `stored` bytes; `there`: the kernels of some."""
        work = sum(self.products(plan, there.get(plan.name)) for plan in plans)
        facts = [(self._facts[plan.name], plan) for plan in plans]
        if self.hardware:
            bounds = self.hardware.bounds(work, sum(f.elements for f, _ in facts), stored)
            return self.hardware.op_cycles * len(facts) + max(bounds.values())
        moved = sum(f.elements * _cycles(plan)[f.feature_map] for f, plan in facts)
        return max(work, stored / MEMORY) + moved

    def products(self, plan: OpPlan, kernel: str | None = None) -> float:
        """Cycles of an op's products; infinite where the target has none of this kind."""
        products = self._facts[plan.name].products
        if self.rates:
            return products / self.rates.rate(plan, kernel)
        known = self.hardware.macs_per_cycle if self.hardware else {}
        rate = next((known[pair] for pair in _pairs(plan) if pair in known), None)
        return products / rate if rate else math.inf if products else 0.0


def kernels(job: Job, plan: QuantPlan) -> dict[str, str]:
    """The kernels that compute ops under a plan; none where the passes refuse it."""
    if not any(op.decision == "integer" for op in plan.ops):
        return {}
    try:
        levels = rewrite(job.program, job.pipeline, replace(job.context(plan), recover=False))
    except JqError:
        return {}
    return {row["name"]: row["kernel"] for row in op_table(plan, levels) if row["kernel"]}


def _cycles(plan: OpPlan) -> tuple[float, float]:
    moving = [p for p in plan.operands.values() if p.kind != "weight"]
    if not moving:
        return FLOATS
    # No kernel quantizes to 16 bits, or cuts such codes into digits.
    return DYNAMIC if any(p.kind == "dynamic" or _wide(p) for p in moving) else STATIC


def _wide(p: TensorPlan) -> bool:
    return (get_format(p.encoding.format).integer_bits or 0) > 8


def _pairs(plan: OpPlan) -> list[str]:
    """The types of an op's operands as a target may state them, activations first: those of the
    formats, or those that their codes are widened to."""
    if plan.decision != "integer":
        return [" x ".join([plan.float_type or "float32"] * 2)]
    sides = sorted(plan.operands.values(), key=lambda p: p.kind == "weight")
    widened = ("int16" if _wide(p) else "int8" for p in sides)
    return [" x ".join(p.encoding.format for p in sides), " x ".join(widened)]
