"""Weights of the plan become low-bit data, dequantized where they were read.

%y = dot_general %x, %w                      // %w: weight "dense/kernel", f32
->
%d = composite "jq.dequantize" %codes, %scale  // weights "dense/kernel:codes", ":scale"
%y = dot_general %x, %d
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jq.errors import FormatError, UserError
from jq.formats import NUMPY, Encoding, get_format
from jq.formats.affine import Affine
from jq.formats.blocks import reduce_blocks
from jq.ir import Program, dtype_of
from jq.ir.build import replace
from jq.ir.encodings import write_encodings
from jq.ir.markers import DEQUANTIZE, match
from jq.ir.stored import store_weight
from jq.passes.base import Pass, PassContext
from jq.plan import QuantPlan


@dataclass(frozen=True)
class PlaceWeights(Pass):
    name = "place-weights"

    def run(self, program: Program, cx: PassContext) -> bool:
        need_sums = weights_with_zero_points_opposite(cx.plan)
        for name, enc in cx.plan.weights.items():
            place(program, name, enc, sums=name in need_sums, chosen=cx.encoded.get(name))
        if cx.settings.weights.emit == "dequantized":
            store_decoded(program)
        program.drop_unused_weights()
        return bool(cx.plan.weights)


def store_decoded(program: Program) -> None:
    """Every stored weight becomes a float weight of the same name, equal to what it decodes to."""
    for op in list(program.walk()):
        marker = match(op, DEQUANTIZE)
        if marker is None or marker.tensor not in program.encodings:
            continue
        enc, dtype = marker.encoding, dtype_of(op.operation.results[0])
        arrays = {k: program.weights[program.weight_name(v) or ""] for k, v in marker.parts.items()}
        decoded = np.asarray(get_format(enc.format).decode(NUMPY, arrays, enc)).astype(dtype)
        value = program.add_weight(f"{marker.tensor}:decoded", decoded)
        replace(op, [value])
        del program.encodings[marker.tensor]
    write_encodings(program)


def weights_with_zero_points_opposite(plan: QuantPlan) -> set[str]:
    """Weights multiplied by asymmetric activations: their block sums correct the product."""
    return {
        p.weight
        for op in plan.ops
        for p in op.operands.values()
        if p.weight is not None
        and any(
            q.weight is None and q.encoding.scheme == "asymmetric" for q in op.operands.values()
        )
    }


def _sum(x: np.ndarray, axes: list[int]) -> np.ndarray:
    return x.sum(axis=tuple(axes), keepdims=True, dtype=np.int32)


def place(
    program: Program,
    name: str,
    enc: Encoding,
    *,
    sums: bool,
    chosen: dict[str, np.ndarray] | None = None,
) -> None:
    """Replaces one float weight by its parts (plain rounding unless `chosen`) and a dequantize."""
    fmt = get_format(enc.format)
    try:
        arrays = dict(chosen or fmt.encode(program.weights[name], enc))
    except FormatError as error:
        raise UserError(error.message, op=name, hint=error.hint) from error
    if sums and isinstance(fmt, Affine):
        codes = np.asarray(fmt.codes(NUMPY, arrays, enc), np.int32)
        arrays["sum"] = reduce_blocks(NUMPY, _sum, codes, enc)
    store_weight(program, name, enc, arrays)
