"""A quantize of a dequantize with the same parameters is nothing.

    quantize (dequantize %q, %s, %z), %s, %z    ->  %q
    quantize_dynamic (dequantize %q, %s)        ->  %q, %s      MX formats

Fires in any granularity, where both parameters are the same numbers; with those of the data, where
the format leaves what it has rounded as it is. Codes that change their
parameters stay as they are: float arithmetic rounds them once, and `lower-regions` has the
integer form for devices without a float unit.
"""

from dataclasses import dataclass

import numpy as np

from jq.formats import get_format
from jq.formats.base import unpacked
from jq.ir import Program
from jq.ir.build import replace
from jq.ir.constants import evaluate
from jq.ir.markers import DEQUANTIZE, QUANTIZE, QUANTIZE_DYNAMIC, Marker, match
from jq.ir.ops.movement import plain
from jq.passes.base import Pass, PassContext
from jq.passes.qdq.sink_dequantize import erase_dead


@dataclass(frozen=True)
class FoldQuantize(Pass):
    name = "fold-quantize"

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for op in program.walk():
            marker = match(op, QUANTIZE, QUANTIZE_DYNAMIC)
            inner = match(marker.op.operands[0], DEQUANTIZE) if marker else None
            if marker is None or inner is None:
                continue
            if marker.kind == QUANTIZE_DYNAMIC:
                if _left_alone(marker, inner):
                    replace(op, [inner.parts[name] for name in marker.parts])
                    changed = True
            elif _same(program, marker, inner):
                replace(op, [inner.parts["codes"]])
                changed = True
        erase_dead(program)
        return changed


def _left_alone(outer: Marker, inner: Marker) -> bool:
    """True if the same blocks are rounded once more, to what they are."""
    idempotent = get_format(outer.encoding.format).idempotent
    return idempotent and unpacked(inner.encoding) == outer.encoding and plain(inner)


def _same(program: Program, outer: Marker, inner: Marker) -> bool:
    """True if quantizing gives back the codes: same format, and the same numbers."""
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
