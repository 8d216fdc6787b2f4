"""Concatenation of quantized tensors.

Not along an axis that shares a scale, nor where the end of a tensor is not the end of a block or of
a byte of packed codes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jq.formats import Encoding
from jq.formats.blocks import joined
from jq.ir import OPS, Op, Program, dtype_of, ir
from jq.ir.build import integer
from jq.ir.markers import DEQUANTIZE, Marker, dequantize, match
from jq.ir.ops.base import Sinking
from jq.ir.ops.rules.selecting import Selecting

Join = Callable[[Sequence[Any], int], Any]


def join_parts(
    encodings: Sequence[Encoding], parts: Sequence[Mapping[str, Any]], axis: int, join: Join
) -> tuple[Encoding, dict[str, Any]] | None:
    """Encoding and parts of tensors one after the other; None where that cannot be.

    `join` concatenates arrays along an axis. Sums of blocks are joined as scales are."""
    found = joined(encodings, axis)
    if found is None or any(p.keys() != parts[0].keys() for p in parts):
        return None
    enc, axes = found
    if "sum" in parts[0]:
        axes["sum"] = axes["scale"]
    return enc, {name: join([p[name] for p in parts], a) for name, a in axes.items()}


class Concatenate(Selecting, Sinking):
    """Quantized tensors with equal parameters are joined without dequantizing them."""

    op, naming = "concatenate", ("dimension",)

    def of_one_type(self, op: Op) -> tuple[int, ...]:
        return tuple(range(len(op.operands)))

    def sink(self, program: Program, op: Op, marker: Marker) -> ir.Value | None:
        markers = [match(v, DEQUANTIZE) for v in op.operands]
        known = [m for m in markers if m is not None]
        types = {tuple(map(dtype_of, m.parts.values())) for m in known}
        if len(known) < len(markers) or len(types) > 1:
            return None
        encodings, parts = [m.encoding for m in known], [m.parts for m in known]
        made = join_parts(encodings, parts, integer(op, "dimension"), OPS.concatenate)
        if made is None:
            return None
        name = "+".join(dict.fromkeys(m.tensor for m in known))
        return dequantize(program, *made, dtype_of(op.results[0]), tensor=name)
