"""One encoding a weight, however many ops read it."""

from __future__ import annotations

from dataclasses import replace

from jq.formats import Encoding
from jq.planning.decisions import OpPlan


def agree_on_weights(
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
