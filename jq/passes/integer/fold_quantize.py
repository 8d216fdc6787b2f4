"""A quantize of a dequantize works on the codes.

    quantize (dequantize %q, %s, %z), %s, %z    ->  %q
    quantize (dequantize %q, %s, %z), %t, %y    ->  clamp(rescale(%q - %z, %s / %t) + %y)

The rescale is the integer one of `jq.formats.requantize`. Fires where scales and zero points are
known now, one a tensor; equal ones disappear in any granularity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jq.formats.affine import unpacked
from jq.ir import Program, at, ir
from jq.ir.build import replace
from jq.ir.constants import evaluate
from jq.ir.markers import DEQUANTIZE, QUANTIZE, Marker, match
from jq.passes.base import Pass, PassContext
from jq.passes.integer._values import I64, centered, leaf_of, output_of, saturated, scaled
from jq.passes.qdq.sink_dequantize import erase_dead


@dataclass(frozen=True)
class FoldQuantize(Pass):
    name = "fold-quantize"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in program.walk():
            marker = match(op, QUANTIZE)
            inner = match(marker.op.operands[0], DEQUANTIZE) if marker else None
            if marker is None or inner is None:
                continue
            codes = inner.parts.get("codes")
            if not _same(program, marker, inner):
                with at(op):
                    codes = _rescaled(program, marker)
            if codes is not None:
                replace(op, [codes])
                changed = True
        erase_dead(program)
        return changed


def _same(program: Program, outer: Marker, inner: Marker) -> bool:
    """Whether quantizing gives back the codes: same format, and the same numbers."""
    if unpacked(inner.encoding) != outer.encoding:
        return False
    for part in ("scale", "zero_point"):
        a, b = outer.parts.get(part), inner.parts.get(part)
        if a is None or b is None:
            if a is not b:
                return False
        elif a != b and not _equal(evaluate(program, a), evaluate(program, b)):
            return False
    return True


def _equal(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is not None and b is not None and np.array_equal(a, b)


def _rescaled(program: Program, marker: Marker) -> ir.Value | None:
    leaf, out = leaf_of(program, marker.op.operands[0]), output_of(program, marker)
    if leaf is None or out is None:
        return None
    x = scaled(program, centered(leaf, I64), np.array(leaf.scale / out.scale), marker.tensor)
    return saturated(x, out)
