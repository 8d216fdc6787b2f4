"""The review of a plan: weights agree on one encoding, and doubtful ranges are named."""

import math
from dataclasses import replace

from jq.base.tables import size
from jq.formats import Encoding, affine_format
from jq.formats.checks import SMALLEST_SCALE
from jq.ir import Program
from jq.ir.types import number_kind
from jq.planning.calibration.observer import Range
from jq.planning.calibration.ranges import Ranges, site
from jq.planning.decisions import OpPlan, QuantPlan, TensorPlan
from jq.target.settings import FLOAT, Settings


def agree_on_weights(ops: tuple[OpPlan, ...]) -> tuple[tuple[OpPlan, ...], dict[str, Encoding]]:
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
    """Reason why integers planned for one encoding cannot be had with another; or empty."""
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


HUGE = 2.0**64  # no activation of a model is so large; products of two leave float32
NAMED = 3  # tensors in a message, at most
HINT = "no range can be chosen from that; give data like those that the model will get"


def doubts(plan: QuantPlan, ranges: Ranges) -> tuple[str, ...]:
    """Warnings on tensors that are quantized with a range of these, one for each kind of doubt."""
    found: dict[str, list[str]] = {}
    sites = {site(op.name, i): p for op in plan.ops for i, p in op.operands.items()}
    sites = {name: p for name, p in sites.items() if p.kind == "static"}
    for name, tensor in (sites | {site(k, 0): p for k, p in plan.edges.items()}).items():
        seen = ranges.sites.get(name)
        doubt = seen and _doubt(seen, tensor, ranges.samples)
        if doubt:
            found.setdefault(doubt, []).append(name.rpartition(":")[0])
    told = []
    for doubt, tensors in found.items():
        names = list(dict.fromkeys(tensors))
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        where = doubt.format(", ".join(names[:NAMED]) + more)
        told.append(f"the calibration data {where}: {HINT}")
    return tuple(told)


def _doubt(seen: Range, tensor: TensorPlan, samples: int) -> str:
    """The fault of a range, with `{}` for the tensors; empty for one that may be right.

    A single number seen once has no chance to vary."""
    low, high = min(seen.low, 0.0), max(seen.high, 0.0)
    fmt = affine_format(tensor.encoding.format)
    largest = max(-low, high)
    if seen.low == seen.high:
        alone = math.prod(tensor.encoding.shape) * samples == 1
        return "" if alone and largest else "never vary at {}"
    if largest < 2.0 ** (fmt.bits - 1) * float(SMALLEST_SCALE):
        return "are so small at {} that every number counts as zero"
    return f"exceed {HUGE:.0e} at {{}}" if largest > HUGE else ""


def mostly_float(program: Program, plan: QuantPlan, settings: Settings) -> str | None:
    """A warning where weights were to be quantized, and more than half of their bytes are not."""
    if settings.weights.format == FLOAT or not settings.op_types:
        return None
    sizes = {name: array.nbytes for name, array in program.weights.items()}
    floats = {n for n, a in program.weights.items() if number_kind(a.dtype) in "fc"}
    stored = tuple(f"{name}:" for name in program.encodings)
    kept = {n for n in floats - plan.weights.keys() if not n.startswith(stored)}
    total, left = sum(sizes.values()), sum(sizes[n] for n in kept)
    if 2 * left <= total:
        return None
    largest = max(kept, key=lambda name: sizes[name])
    return (
        f"{size(left)} of {size(total)} of weights stay float, most of them in {largest}:"
        " `explain` says why"
    )
