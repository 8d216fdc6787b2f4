"""Rules to try for the layers that make most noise by themselves."""

from __future__ import annotations

import glob
import math
from collections.abc import Sequence
from dataclasses import dataclass

from jq.comparison.outputs import LayerError
from jq.formats import Encoding, get_format
from jq.measuring.verdict import furthest
from jq.planning import OpPlan, QuantPlan
from jq.settings import FLOAT

MOST = 3  # rules
ENOUGH = 40.0  # dB: a layer that makes no more noise than this needs no rule


@dataclass(frozen=True)
class Suggestion:
    """`rule` as `--rule` takes it, the layer that it is about, and why."""

    rule: str
    layer: str
    why: str


def suggestions(
    layers: Sequence[LayerError], plan: QuantPlan, integer_only: bool
) -> list[Suggestion]:
    """One rule a layer, the worst first: more bits where it has few, else float.

    None for what an integer-only program cannot be given.
    """
    plans, found = {op.name: op for op in plan.ops}, []
    for layer in furthest(layers, MOST):
        change, what = _change(plans[layer.name]), f"{layer.isolated_sqnr_db:.1f} dB by itself"
        if layer.isolated_sqnr_db < ENOUGH and not (integer_only and change == FLOAT):
            found.append(Suggestion(f"{pattern(layer.name)}: {change}", layer.name, what))
    return found


def _change(op: OpPlan) -> str:
    """What the override of a rule would say."""
    if any(_few_bits(p.encoding) for p in op.operands.values() if p.kind == "weight"):
        return "weights.format=int8, weights.granularity=per-channel"
    return FLOAT


def _few_bits(enc: Encoding) -> bool:
    """Whether less than a byte is stored for each element, scales included."""
    return get_format(enc.format).stored_bytes(enc) < math.prod(enc.shape)


def pattern(name: str) -> str:
    """A pattern that matches this name alone."""
    literal = glob.escape(name)
    return f"[r]{literal[1:]}" if literal.startswith("re:") else literal
