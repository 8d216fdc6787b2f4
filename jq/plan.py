"""Deciding: per contraction and per tensor either a format, or the reason for declining.

`plan` reads a float program and changes nothing; the passes carry out what it says.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from jq.calibrate.ranges import Ranges, site
from jq.errors import FormatError
from jq.formats import Encoding, get_format
from jq.formats.affine import Affine, unpacked
from jq.formats.ggml import GgmlFormat
from jq.ir import Program, dtype_of, ir, shape_of
from jq.ir.build import NAME, SCOPE, string_attr
from jq.ir.markers import DEQUANTIZE, Marker, edge_name, match
from jq.ops.base import Axes, Contraction, Movement, Role, rule_of
from jq.settings import FLOAT, Rule, Settings, TensorSettings, apply_overrides
from jq.target import Target

Kind = Literal["weight", "dynamic", "static", "given"]
ACCUMULATOR_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class TensorPlan:
    """How one operand is quantized.

    A weight is known by `weight` (its name) and its encoding is that of the whole stored
    tensor; an activation's encoding is that of the operand. `parameters` (scale, zero point)
    belong to static activations. `stored`: the weight came quantized and stays as it is; an
    activation that the model quantizes itself is `given`.
    """

    kind: Kind
    encoding: Encoding
    weight: str | None = None
    parameters: tuple[float, int | None] | None = None
    stored: bool = False

    def describe(self) -> str:
        enc = self.encoding
        tokens = (
            enc.granularity
            if self.kind not in ("dynamic", "given") or max(enc.block) == 0
            else "per-token"
        )
        came = " (stored)" if self.stored else " (given)" if self.kind == "given" else ""
        return f"{enc.format} {tokens} {enc.scheme}{came}"


@dataclass(frozen=True)
class OpPlan:
    """The decision on one op. `operands` has an entry for each operand that is quantized."""

    name: str
    op: str
    decision: Literal["integer", "weight-only", "float"]
    operands: dict[int, TensorPlan] = field(default_factory=dict)
    reason: str = ""
    note: str = ""  # what was chosen for the target, of an op that is quantized
    float_type: str = ""  # in which an op that stays float computes, where that is not its own

    def to_dict(self) -> dict[str, Any]:
        def of(weights: bool) -> str | None:
            kinds = [
                t.describe() for t in self.operands.values() if (t.kind == "weight") == weights
            ]
            return " x ".join(kinds) or None

        return {
            "name": self.name,
            "op": self.op,
            "decision": self.decision,
            "weights": of(True),
            "activations": of(False),
            "reason": self.reason or self.note,
        }


@dataclass(frozen=True)
class QuantPlan:
    """All decisions, in program order, and the encoding of every weight to be quantized.

    Weights that came quantized are not among `weights`: nothing is left to do for them.
    `edges`: tensors between regions, by the name that `jq.edge` gives them.
    """

    ops: tuple[OpPlan, ...]
    weights: dict[str, Encoding]
    unused_rules: tuple[str, ...] = ()
    unranged: tuple[str, ...] = ()  # sites whose range was needed and is not known
    edges: dict[str, TensorPlan] = field(default_factory=dict)

    def __getitem__(self, name: str) -> OpPlan:
        return next(op for op in self.ops if op.name == name)

    def to_dict(self) -> dict[str, Any]:
        rows = [op.to_dict() for op in self.ops]
        return {"ops": rows, "unused_rules": list(self.unused_rules)}


class Declined(Exception):
    """Raised inside planning with the reason; never leaves this module."""


@dataclass(frozen=True)
class WeightUse:
    """A weight found behind an operand: which of its axes the contraction sums over.

    `stored` is its encoding when it came quantized.
    """

    name: str
    shape: tuple[int, ...]
    contracted: Axes
    block_axis: int | None
    stored: Encoding | None = None


def contractions(program: Program) -> Iterator[tuple[Any, Contraction]]:
    """Every op that could be quantized, with its rule."""
    for op in program.walk():
        rule = rule_of(op)
        if isinstance(rule, Contraction):
            yield op, rule


def op_name(op: Any) -> str:
    return string_attr(op, NAME) or op.operation.name


def find_weight(program: Program, value: ir.Value, role: Role) -> WeightUse | None:
    """Follows an operand back through movements to a weight, or None when it is computed."""
    contracted = role.contracted
    block = frozenset() if role.block_axis is None else frozenset({role.block_axis})
    while True:
        name, marker = program.weight_name(value), match(value, DEQUANTIZE)
        if marker is not None and not is_stored(program, marker):
            return None
        if name is not None or marker is not None:
            shape = shape_of(value)
            axis = max((a for a in block if shape[a] > 1), default=None)
            if marker is not None:
                return WeightUse(marker.tensor, shape, contracted, axis, marker.encoding)
            return WeightUse(name or "", shape, contracted, axis)
        if isinstance(value.owner, ir.Block):
            return None
        op: Any = value.owner
        rule = rule_of(op)
        if not isinstance(rule, Movement):
            return None
        contracted, block = rule.back(op, contracted), rule.back(op, block)
        value = op.operation.operands[0]


def is_stored(program: Program, marker: Marker) -> bool:
    """Whether a dequantize reads weights of the program, not codes that it computes."""
    return all(program.weight_name(part) is not None for part in marker.parts.values())


def given_activation(program: Program, value: ir.Value, role: Role) -> Encoding | None:
    """Encoding of an operand that the model itself quantizes, with one scale where `role` sums.

    None for an operand that is not quantized, or not in a way that this contraction can use.
    """
    contracted, shape = role.contracted, shape_of(value)
    moved = False
    while True:
        marker = match(value, DEQUANTIZE)
        if marker is not None:
            break
        op: Any = value.owner
        if isinstance(op, ir.Block) or not isinstance(rule := rule_of(op), Movement):
            return None
        contracted, value, moved = rule.back(op, contracted), op.operation.operands[0], True
    enc = marker.encoding
    fits = all(enc.grid[a] == 1 for a in contracted) and max(enc.block, default=0) <= 1
    if not fits or not isinstance(get_format(enc.format), Affine) or is_stored(program, marker):
        return None
    if not moved:
        return enc
    if max(enc.block, default=0) == 0:
        return enc.with_shape(shape, (0,) * len(shape))
    return enc.with_shape(shape, tuple(int(a not in role.contracted) for a in range(len(shape))))


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
            all others replaced by the nearest that it has.
    """
    planner = _Planner(program, settings, target, rules, ranges or Ranges(), frozenset(explicit))
    ops = tuple(planner.decide(op, rule) for op, rule in contractions(program))
    ops, weights = _agree_on_weights(ops)
    unused = tuple(r.pattern for r in rules if r.pattern not in planner.used)
    edges = {n: p for op in program.walk() if (n := edge_name(op)) and (p := planner.edge(op, n))}
    return QuantPlan(ops, weights, unused, tuple(planner.unranged), edges)


@dataclass
class _Planner:
    program: Program
    settings: Settings
    target: Target
    rules: tuple[Rule, ...]
    ranges: Ranges
    explicit: frozenset[str] = frozenset()
    used: set[str] = field(default_factory=set)
    unranged: list[str] = field(default_factory=list)

    def decide(self, op: Any, rule: Contraction) -> OpPlan:
        name, kind = op_name(op), rule.op
        settings, note = self._settings_for(op, rule)
        try:
            operands = self._operands(op, rule, settings)
        except (Declined, FormatError) as reason:
            declined = self._declined(op, rule, str(reason))
            own = settings.float_type == "own" or declined.decision != "float"
            return declined if own else replace(declined, float_type=settings.float_type)
        integer = len(operands) == len(rule.roles(op)) > 1
        decision: Literal["integer", "weight-only"] = "integer" if integer else "weight-only"
        return OpPlan(name, kind, decision, operands, note=note)

    def _declined(self, op: Any, rule: Contraction, reason: str) -> OpPlan:
        """Float, but for weights that came quantized: they stay so whatever is said of the op."""
        uses = {r.index: find_weight(self.program, op.operands[r.index], r) for r in rule.roles(op)}
        kept = {i: stored_plan(u) for i, u in uses.items() if u is not None and u.stored}
        return OpPlan(op_name(op), rule.op, "weight-only" if kept else "float", kept, reason)

    def _settings_for(self, op: Any, rule: Contraction) -> tuple[Settings, str]:
        """Settings of one op as its target can carry them out, and what was changed for that."""
        uses = [find_weight(self.program, op.operands[r.index], r) for r in rule.roles(op)]
        paths = [u.name for u in uses if u is not None]
        names = (op_name(op), string_attr(op, SCOPE) or "", rule.op, *paths)
        for r in self.rules:
            if r.matches(names):
                self.used.add(r.pattern)
                where = f"rule {r.pattern!r}"
                settings = apply_overrides(self.settings, r.override, where=where)
                return self.target.adapt(settings, self.explicit | r.override.keys())
        return self.target.adapt(self.settings, self.explicit)

    def _operands(self, op: Any, rule: Contraction, settings: Settings) -> dict[int, TensorPlan]:
        if rule.op not in settings.op_types:
            raise Declined(f"{rule.op} is not among op_types")
        if rule.op not in self.target.device.ops:
            raise Declined(f"target {self.target.name} has no quantized {rule.op}")
        if reason := rule.decline(op):
            raise Declined(reason)
        roles = rule.roles(op)
        if not all(dtype_of(op.operands[r.index]).kind in "fV" for r in roles):
            raise Declined("already integer")
        uses = {r.index: find_weight(self.program, op.operands[r.index], r) for r in roles}
        weights = {i: u for i, u in uses.items() if u is not None}
        if len(weights) == len(roles) > 1:
            raise Declined("both operands are constant")
        plans = {i: self._weight(u, settings) for i, u in weights.items()}
        plans |= self._given(op, rule, weights)
        own = len(plans) == len(roles)
        if not weights and not own and settings.activation_products == FLOAT:
            raise Declined("a product of two activations stays float (activation_products=float)")
        rest = [r for r in roles if r.index not in plans]
        if rest and settings.activations.format != FLOAT:
            for r in rest:
                plans[r.index] = self._activation(op, r, settings)
        if len(plans) == len(roles) > 1:
            self._check_products(op, rule, plans, weights)
        elif rest and weights and not self.target.device.float_products:
            raise Declined(f"target {self.target.name} has no product with a float operand")
        if not plans:
            raise Declined("activations stay float in this pipeline")
        return plans

    def _given(self, op: Any, rule: Contraction, weights: Collection[int]) -> dict[int, TensorPlan]:
        """Operands that the model quantizes itself, in a way that the device has."""
        device, found = self.target.device, {}
        for role in rule.roles(op):
            if role.index in weights:
                continue
            enc = given_activation(self.program, op.operands[role.index], role)
            if enc is None or enc.scheme not in device.activation_schemes:
                continue
            if enc.granularity == "per-tensor" or "per-token" in device.activation_granularities:
                found[role.index] = TensorPlan("given", enc)
        return found

    def _has(self, wanted: str, offered: Collection[str], key: str) -> None:
        """Declines what the device lacks, and says what can be asked for instead."""
        if wanted not in offered:
            others = f"; set {key}={' or '.join(offered)}" if offered else ""
            raise Declined(f"target {self.target.name} has no {wanted} {key.split('.')[0]}{others}")

    def _weight(self, use: WeightUse, settings: Settings) -> TensorPlan:
        if use.stored:
            return stored_plan(use)
        s, count = settings.weights, math.prod(use.shape)
        if s.format == FLOAT:
            raise Declined("a rule or setting keeps it float")
        if count < settings.min_elements:
            raise Declined(f"{count} elements, fewer than min_elements={settings.min_elements}")
        if self.program.weights[use.name].dtype.kind not in "fV":
            raise Declined("the weight is already integer")
        device = self.target.device
        self._has(s.scheme, device.weight_schemes, "weights.scheme")
        self._has(s.granularity, device.weight_granularities, "weights.granularity")
        block = weight_block(use, s)
        enc = _encoding(s, use.shape, block)
        get_format(s.format).check(enc)
        return TensorPlan("weight", enc, weight=use.name)

    def _activation(self, op: Any, role: Role, settings: Settings) -> TensorPlan:
        s, device = settings.activations, self.target.device
        shape = shape_of(op.operands[role.index])
        self._has(s.scheme, device.activation_schemes, "activations.scheme")
        if s.granularity not in ("per-tensor", "per-token"):
            raise Declined(f"activations cannot be {s.granularity}; they can be per-token")
        if not isinstance(get_format(s.format), Affine):
            raise Declined(f"activations cannot be {s.format}")
        if s.mode == "static":
            return self._static(site(op_name(op), role.index), s, shape)
        if not device.dynamic:
            raise Declined(
                f"target {self.target.name} has no dynamic quantization;"
                " set activations.mode=static"
            )
        self._has(s.granularity, device.activation_granularities, "activations.granularity")
        token = s.granularity == "per-token"
        block = tuple(0 if a in role.contracted or not token else 1 for a in range(len(shape)))
        return TensorPlan("dynamic", unpacked(_encoding(s, shape, block)))

    def edge(self, op: Any, name: str) -> TensorPlan | None:
        """Parameters of a tensor between regions; None without a range."""
        try:
            return self._static(site(name, 0), self.settings.activations, shape_of(op.operands[0]))
        except Declined:
            return None

    def _static(self, where: str, s: TensorSettings, shape: tuple[int, ...]) -> TensorPlan:
        if not self.target.device.static:
            raise Declined(
                f"target {self.target.name} has no static quantization;"
                " set activations.mode=dynamic"
            )
        self._has(
            "per-tensor", self.target.device.activation_granularities, "activations.granularity"
        )
        fmt = get_format(s.format)
        assert isinstance(fmt, Affine)
        seen = self.ranges.get(where, fmt.bits, s.scheme)
        if seen is None:
            self.unranged.append(where)
            raise Declined("no calibrated range; this op was not reached by the calibration data")
        enc = unpacked(_encoding(s, shape, (0,) * len(shape)))
        low, high = (np.full(enc.grid, v, np.float32) for v in (seen.low, seen.high))
        scale, zero = fmt.parameters(low, high, enc)
        point = None if zero is None else int(zero.reshape(-1)[0])
        return TensorPlan("static", enc, parameters=(float(scale.reshape(-1)[0]), point))

    def _check_products(
        self, op: Any, rule: Contraction, plans: dict[int, TensorPlan], uses: dict[int, WeightUse]
    ) -> None:
        """The device must have the product, and its accumulator must hold every sum."""
        sides = sorted(plans.values(), key=lambda p: p.kind == "weight")
        bits = [code_bits(p.encoding) for p in sides]
        pair = " x ".join(f"int{n}" for n in bits)
        if len(bits) > 1 and pair not in self.target.device.products:
            others = ", ".join(self.target.device.products) or "none"
            raise Declined(f"target {self.target.name} has no product {pair}; it has: {others}")
        for p in sides:
            if p.stored:
                device, enc = self.target.device, p.encoding
                self._has(enc.granularity, device.weight_granularities, "weights.granularity")
                self._has(enc.scheme, device.weight_schemes, "weights.scheme")
        terms = rule.terms(op)
        for i, use in uses.items():
            terms = min(terms, _summed(rule, use, plans[i].encoding, rule.terms(op)))
        bound = terms * math.prod(_largest(p) for p in sides)
        if 16 not in bits and bound > ACCUMULATOR_LIMIT:
            raise Declined(f"{terms} products can overflow an int32 accumulator")


def stored_plan(use: WeightUse) -> TensorPlan:
    """A weight that came quantized, as it is."""
    assert use.stored is not None
    return TensorPlan("weight", use.stored, weight=use.name, stored=True)


def code_bits(enc: Encoding) -> int:
    """Bits of the integers that a tensor is computed with."""
    fmt = get_format(enc.format)
    if isinstance(fmt, Affine):
        return fmt.bits
    if isinstance(fmt, GgmlFormat):
        return 8
    raise Declined(f"{enc.format} has no integer product")


def _summed(rule: Contraction, use: WeightUse, enc: Encoding, terms: int) -> int:
    """How many products the integers of one block sum; the blocks are summed in float."""
    shared = [a for a, n in enumerate(enc.shape) if a not in use.contracted and 1 < enc.grid[a] < n]
    blocked = [a for a in use.contracted if enc.grid[a] > 1]
    if shared or len(blocked) > 1:
        raise Declined(f"blocks {enc.block} of the weight do not lie along one contracted axis")
    if not blocked:
        return terms
    if not rule.splits_blocks:
        raise Declined(f"{rule.op} has no integer form with blocks along a contracted axis")
    (axis,) = blocked
    length, size = enc.shape[axis], enc.block[axis]
    if length % size:
        raise Declined(f"blocks of {size} do not divide the contracted axis of {length}")
    return terms // length * size


def weight_block(use: WeightUse, s: TensorSettings) -> tuple[int, ...]:
    """Block sizes of a weight: one scale along contracted axes, blocks along one of them."""
    rank = len(use.shape)
    if use.block_axis is not None:
        own = get_format(s.format).default_block(use.shape, use.block_axis)
        if own is not None:
            return own
    if s.granularity == "per-tensor":
        return (0,) * rank
    if s.granularity == "per-block" and use.block_axis is not None:
        return tuple(
            s.block_size if a == use.block_axis else int(a not in use.contracted)
            for a in range(rank)
        )
    return tuple(int(a not in use.contracted) for a in range(rank))


def _encoding(s: TensorSettings, shape: tuple[int, ...], block: tuple[int, ...]) -> Encoding:
    options = tuple(sorted(s.options.items()))
    return Encoding(s.format, shape, block, s.scheme, s.scale_type, options)


def _largest(p: TensorPlan) -> int:
    """Bound on |code - zero point|."""
    bits = code_bits(p.encoding)
    return 2**bits - 1 if p.encoding.scheme == "asymmetric" else 2 ** (bits - 1)


def _agree_on_weights(
    ops: tuple[OpPlan, ...],
) -> tuple[tuple[OpPlan, ...], dict[str, Encoding]]:
    """One encoding a weight: uses that differ share what both can live with."""
    weights: dict[str, Encoding] = {}
    for op in ops:
        for p in op.operands.values():
            if p.weight is None or p.stored:
                continue
            old = weights.get(p.weight)
            weights[p.weight] = p.encoding if old is None else _common(old, p.encoding)
    return tuple(_with_encodings(op, weights) for op in ops), weights


def _with_encodings(op: OpPlan, weights: dict[str, Encoding]) -> OpPlan:
    """The plan with the encodings that were agreed on; in float where they do not suit it."""
    agreed = {
        i: p if (e := weights.get(p.weight or "")) is None else replace(p, encoding=e)
        for i, p in op.operands.items()
    }
    for i, p in agreed.items():
        reason = _unfit(op.operands[i].encoding, p.encoding)
        if op.decision == "integer" and reason:
            kept = {k: q for k, q in agreed.items() if q.kind == "weight"}
            return replace(op, decision="weight-only", operands=kept, reason=reason)
    return replace(op, operands=agreed)


def _unfit(planned: Encoding, agreed: Encoding) -> str:
    """Why integers that were planned for one encoding cannot be had with another; or empty."""
    if agreed.format != planned.format:
        return f"another op stores the same weight as {agreed.format}"
    if agreed != planned and max(agreed.block, default=0) > 1:
        return "another op reads the same weight in blocks along another axis"
    return ""


def _common(a: Encoding, b: Encoding) -> Encoding:
    """Per channel, a shared axis in one is shared in both; blocks are those of the first use."""
    if max(*a.block, *b.block, 0) > 1:
        return a if max(a.block) > 1 else b
    pairs = zip(a.block, b.block, strict=True)
    return replace(a, block=tuple(0 if 0 in pair else 1 for pair in pairs))
