"""Rules to try for the layers that make most noise by themselves."""

from __future__ import annotations

import glob
import math
from collections.abc import Sequence
from dataclasses import dataclass

from jq.comparison.result import LayerError
from jq.formats import Encoding, get_format
from jq.measuring.verdict import furthest
from jq.planning import OpPlan, QuantPlan
from jq.settings import FLOAT

MOST = 3  # rules
ENOUGH = 40.0  # dB: a layer that makes no more noise than this needs no rule


@dataclass(frozen=True)
class Suggestion:
    """`rule` as `--rule` takes it, the layer that it is about, why, and what to expect of it."""

    rule: str
    layer: str
    why: str
    hope: str


def suggestions(
    layers: Sequence[LayerError], plan: QuantPlan, integer_only: bool
) -> list[Suggestion]:
    """One rule a layer, the worst first: more bits where it has few, else float.

    None for what an integer-only program cannot be given.
    """
    plans, found = {op.name: op for op in plan.ops}, []
    for layer in furthest(layers, MOST):
        change, what = _change(plans[layer.name]), f"{layer.isolated_sqnr_db:.1f} dB by itself"
        now, then = layer.sqnr_db, without_own_noise(layer)
        hope = "not known" if then is None else f"from {now:.1f} to at most {then:.1f} dB"
        if layer.isolated_sqnr_db < ENOUGH and not (integer_only and change == FLOAT):
            found.append(Suggestion(f"{pattern(layer.name)}: {change}", layer.name, what, hope))
    return found


def without_own_noise(layer: LayerError) -> float | None:
    """SQNR in dB of a layer's result if the layer itself made no noise, and only what it reads did.

    The powers of both noises are taken to add up. None where the layer's own is the larger one:
    then they do not.
    """
    own, all_noise = (10 ** (-db / 10) for db in (layer.isolated_sqnr_db, layer.sqnr_db))
    return -10 * math.log10(all_noise - own) if own < all_noise else None


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
