"""Levels: what must not be left in a program of each, and the pass that takes it away.

Checked after the passes of a level have run: a program that the compiler would get wrong is
never handed over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jq.base.errors import UserError
from jq.ir import Op, Program
from jq.ir.build import NAME, string_attr
from jq.ir.markers import marker_kind
from jq.passes.iree_mends.integers.shield_booleans import reads_booleans
from jq.passes.iree_mends.multiply_outer import is_outer
from jq.passes.iree_mends.order_broadcasts import permutes
from jq.passes.iree_mends.plain_transforms import needs_products
from jq.passes.iree_mends.plain_windows import ends_early, reversed_axes
from jq.passes.iree_mends.scatters.plain_scatters import needs_rows
from jq.passes.iree_mends.shields.shield_carries import lost_carries
from jq.passes.iree_mends.shields.shield_slices import read_apart
from jq.passes.iree_mends.shields.shield_starts import shared_starts
from jq.passes.iree_mends.shields.shield_unsigned import is_unsigned
from jq.passes.iree_mends.widen_depthwise import is_narrow_depthwise
from jq.passes.prepare.clamp_indices import may_be_outside


@dataclass(frozen=True)
class Ban:
    """Ops that must not be there: what they are, and the pass that rewrites them."""

    what: str
    found: Callable[[Any], object]
    cure: str


def _quantized(op: Op) -> bool:
    values = (*op.operation.operands, *op.operation.results)
    return any("!quant." in str(v.type) for v in values)


_PLAIN = (
    Ban("a marker", marker_kind, "lower-markers"),
    Ban("a quantized type", _quantized, "lower-markers"),
)
LEVELS: dict[str, tuple[Ban, ...]] = {
    "integer": _PLAIN,
    "target": (
        *_PLAIN,
        Ban("a product that sums over nothing", is_outer, "multiply-outer"),
        Ban("a contraction of unsigned integers", is_unsigned, "shield-unsigned"),
        Ban("a depthwise convolution with a narrow filter", is_narrow_depthwise, "widen-depthwise"),
        Ban("a broadcast that permutes", permutes, "order-broadcasts"),
        Ban("a reversed window", reversed_axes, "plain-windows"),
        Ban("a window that ends early", ends_early, "plain-windows"),
        Ban("a Fourier transform of this length", needs_products, "plain-transforms"),
        Ban("a gather or reversal of what lies apart", read_apart, "shield-slices"),
        Ban("a product that reads truth values as numbers", reads_booleans, "shield-booleans"),
        Ban("a start of a loop that others read", shared_starts, "shield-starts"),
        Ban("a carry that no step of a loop reads", lost_carries, "shield-carries"),
        Ban("a gather that may read outside of its operand", may_be_outside, "clamp-indices"),
        Ban("a scatter that is not of rows that exist", needs_rows, "plain-scatters"),
    ),
}


def check_level(program: Program, level: str) -> None:
    """Raises `UserError` with the pass that should have acted if `program` does not fit."""
    for op in program.walk():
        for ban in LEVELS.get(level, ()):
            if ban.found(op):
                raise UserError(
                    f"{ban.what} is left at level {level}",
                    op=string_attr(op, NAME) or op.operation.name,
                    hint=f"the pass {ban.cure} does not know how to rewrite it",
                )
