"""Weights of the plan become low-bit data, dequantized where they were read.

%y = dot_general %x, %w                      // %w: weight "dense/kernel", f32
->
%d = composite "jq.dequantize" %codes, %scale  // weights "dense/kernel:codes", ":scale"
%y = dot_general %x, %d

An op that a rule keeps float reads the float weight, stored besides as "dense/kernel:float". In
integer-only programs so does what is no product, which has it as a constant."""

from collections.abc import Collection, Mapping

import numpy as np

from jq.base.errors import LOG
from jq.formats import NUMPY, Encoding, affine_format, get_format, is_affine
from jq.formats.blocks import reduce_blocks
from jq.formats.checks import scales_vanish
from jq.ir import Op, Program, at, copied, dtype_of, maker, replace
from jq.ir.encodings import store_weight, write_encodings
from jq.ir.markers import DEQUANTIZE, match
from jq.ir.ops import Contraction, Movement, rule_of
from jq.passes.base import Pass, PassContext, of_weight
from jq.planning.decisions import QuantPlan
from jq.planning.operands import contractions, op_name

Arrays = Mapping[str, np.ndarray]
FLOAT = ":float"  # after the name of a weight that is stored as it is, besides its parts


class PlaceWeights(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        floats = keep_floats(program, cx.plan, constants=cx.settings.integer_only)
        need_sums = weights_with_zero_points_opposite(cx.plan)
        for name, enc in cx.plan.weights.items():
            place(program, name, enc, sums=name in need_sums, chosen=program.chosen.pop(name, None))
        for name in floats:
            program.encodings[name]["float_copy"] = True
        if cx.settings.weights.emit == "dequantized":
            store_decoded(program)
        program.drop_unused_weights()
        return bool(cx.plan.weights)


def keep_floats(program: Program, plan: QuantPlan, constants: bool = False) -> set[str]:
    """Ops that keep a weight float, which others quantize, read a weight of their own; `constants`:
    so do those that are no products. Gives the names of such weights."""
    kept = {op.name: plan.weights.keys() & set(op.float_weights) for op in plan.ops}
    for op, rule in list(contractions(program)) if any(kept.values()) else ():
        for role in rule.roles(op) if kept.get(op_name(op)) else ():
            _read_own(program, op, role.index, kept[op_name(op)])
    for op in list(program.walk()) if constants else ():
        if op.results and not (match(op) or isinstance(rule_of(op), Movement | Contraction)):
            for i in range(len(op.operands)):
                _read_own(program, op, i, plan.weights)
    return {name for name in plan.weights if f"{name}{FLOAT}" in program.weights}


def _read_own(program: Program, op: Op, index: int, names: Collection[str]) -> None:
    """Operand `index`, where it is one of the weights, becomes the same moves of a copy of it."""
    moves, value = [], op.operands[index]
    while (name := program.weight_name(value)) is None:
        if maker(value) is None or not isinstance(rule_of(value.owner), Movement):
            return
        moves.append(value.owner)
        value = value.owner.operands[0]
    if name not in names:
        return
    own = program.add_weight(f"{name}{FLOAT}", program.weights[name])
    with at(op):
        for move in reversed(moves):
            own = copied(move, [own]).results[0]
    op.operands[index] = own


def store_decoded(program: Program) -> None:
    """Every stored weight becomes a float weight of the same name, equal to what it decodes to."""
    for op in list(program.walk()):
        marker = match(op, DEQUANTIZE)
        if marker is None or marker.tensor not in program.encodings:
            continue
        enc, dtype = marker.encoding, dtype_of(op.results[0])
        arrays = {k: program.weights[program.weight_name(v) or ""] for k, v in marker.parts.items()}
        decoded = np.asarray(get_format(enc.format).decode(NUMPY, arrays, enc)).astype(dtype)
        value = program.add_weight(f"{marker.tensor}:decoded", decoded)
        replace(op, [value])
        del program.encodings[marker.tensor]
    write_encodings(program)


def weights_with_zero_points_opposite(plan: QuantPlan) -> set[str]:
    """Weights multiplied by asymmetric activations: their block sums correct the product."""
    found = set[str]()
    for operands in (op.operands.values() for op in plan.ops):
        if any(p.weight is None and p.encoding.scheme == "asymmetric" for p in operands):
            found.update(p.weight for p in operands if p.weight is not None)
    return found


def sums_of(parts: Arrays, enc: Encoding) -> np.ndarray:
    """The sums of the codes of each block."""
    codes = np.asarray(affine_format(enc.format).codes(NUMPY, parts, enc), np.int32)
    return np.asarray(reduce_blocks(NUMPY, NUMPY.reduce_sum, codes, enc))


def place(
    program: Program, name: str, enc: Encoding, *, sums: bool, chosen: Arrays | None = None
) -> None:
    """Replaces one float weight by its parts (plain rounding unless `chosen`) and a dequantize."""
    fmt = get_format(enc.format)
    with of_weight(name):
        arrays = dict(chosen or fmt.encode(program.weights[name], enc))
    if scales_vanish(arrays):
        hint = "weights.scale_type=float32 has scales for it"
        LOG.warning("%s: stored as zeros, too small for scales of float16: %s", name, hint)
    if sums and is_affine(enc.format):
        arrays["sum"] = sums_of(arrays, enc)
    store_weight(program, name, enc, arrays)
