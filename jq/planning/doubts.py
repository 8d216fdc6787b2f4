"""Calibrated ranges that nothing can be chosen from, said by the names of their tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator

from jq.formats.affine import affine_format
from jq.formats.checks import SMALLEST_SCALE
from jq.planning.calibration.range import Range
from jq.planning.calibration.ranges import Ranges, site
from jq.planning.decisions import QuantPlan, TensorPlan

HUGE = 2.0**64  # no activation of a model is so large; products of two leave float32
NAMED = 3  # tensors in a message, at most
HINT = "no range can be chosen from that; give data like those that the model will get"


def doubts(plan: QuantPlan, ranges: Ranges) -> tuple[str, ...]:
    """Warnings on tensors that are quantized with a range of these, one for each kind of doubt."""
    found: dict[str, list[str]] = {}
    for name, tensor in _static(plan):
        seen = ranges.sites.get(name)
        doubt = seen and _doubt(seen, tensor, ranges.samples)
        if doubt:
            found.setdefault(doubt, []).append(name.rpartition(":")[0])
    return tuple(_told(doubt, list(dict.fromkeys(names))) for doubt, names in found.items())


def _static(plan: QuantPlan) -> Iterator[tuple[str, TensorPlan]]:
    """Sites, with how they are quantized."""
    for op in plan.ops:
        for index, tensor in op.operands.items():
            if tensor.kind == "static":
                yield site(op.name, index), tensor
    for name, tensor in plan.edges.items():
        yield site(name, 0), tensor


def _doubt(seen: Range, tensor: TensorPlan, samples: int) -> str:
    """The fault of a range, with `{}` for the tensors; empty for one that may be right.

    A single number seen once has no chance to vary.
    """
    low, high = min(seen.low, 0.0), max(seen.high, 0.0)
    fmt = affine_format(tensor.encoding.format)
    largest = max(-low, high)
    if seen.low == seen.high:
        alone = math.prod(tensor.encoding.shape) * samples == 1
        return "" if alone and largest else "never vary at {}"
    if largest < 2.0 ** (fmt.bits - 1) * float(SMALLEST_SCALE):
        return "are so small at {} that every number counts as zero"
    return f"exceed {HUGE:.0e} at {{}}" if largest > HUGE else ""


def _told(doubt: str, names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    where = doubt.format(", ".join(names[:NAMED]) + more)
    return f"the calibration data {where}: {HINT}"
