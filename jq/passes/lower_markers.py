"""Markers that are left become the arithmetic of their decomposition; then only plain StableHLO.

%d = composite "jq.dequantize" %codes, %scale -> convert, broadcast_in_dim, multiply"""

from collections.abc import Iterator
from dataclasses import dataclass

from jq.formats import get_format
from jq.formats.scaled import Scaled
from jq.ir import OPS, Op, Program, at, dtype_of, ir, kind_of, maker
from jq.ir.build import NAME, inlined, replace, string_attr
from jq.ir.contract import match_contract
from jq.ir.encodings import drop_encodings
from jq.ir.markers import DEQUANTIZE, QUANTIZE, QUANTIZE_DYNAMIC, marker_kind, match
from jq.ir.ops import Contraction, elements, rule_of
from jq.ir.ops.integer_step import STEP, match_integer
from jq.ir.pointwise import ELEMENTWISE
from jq.passes.base import Pass, PassContext
from jq.passes.integer._ops import PRODUCTS_AND_SUMS
from jq.planning.operands import is_stored


@dataclass(frozen=True)
class LowerMarkers(Pass):
    """`named`: what a step of integers results in has the step's name and kind (`STEP`)."""

    named: bool = False

    def run(self, program: Program, cx: PassContext) -> bool:
        functions = {f.name.value: f for f in program.functions()}
        changed = _round(program)
        for op in program.walk():
            if marker_kind(op):
                symbol = ir.FlatSymbolRefAttr(op.attributes["decomposition"]).value
                step = match_integer(op) if self.named else None
                with at(op):
                    values = inlined(functions[symbol].entry_block, op.operands)
                    if step and (made := maker(values[0])):
                        made.attributes[NAME] = ir.StringAttr.get(step.name)
                        made.attributes[STEP] = ir.StringAttr.get(step.kind)
                    replace(op, values)
                changed = True
        for symbol in set(program.decompositions.values()) & set(functions):
            functions[symbol].erase()
        program.decompositions.clear()
        drop_encodings(program)
        program.run_passes("func.func(canonicalize,cse)")
        program.drop_unused_weights()
        return changed


def _round(program: Program) -> bool:
    """Activations that are quantized and dequantized at once are rounded, without codes, where
    their format has elements times scales."""
    done = False
    for op in list(program.walk()):
        marker = match(op, DEQUANTIZE)
        made = match(next(iter(marker.parts.values())), QUANTIZE_DYNAMIC) if marker else None
        if marker is None or made is None or made.parts != marker.parts:
            continue
        enc, fmt = marker.encoding, get_format(marker.encoding.format)
        if enc == made.encoding and isinstance(fmt, Scaled):
            with at(op):
                x = fmt.fake_quantize(OPS, made.op.operands[0], enc)
                replace(op, [OPS.convert(x, dtype_of(op.results[0]))])
            done = True
    return done


SUMS = ("stablehlo.reduce", "stablehlo.reduce_window", *PRODUCTS_AND_SUMS)


def dequantized(program: Program, cx: PassContext) -> list[dict[str, str]]:
    """One row for each op that reads a dequantized activation, or an integer product, as floats."""
    return [
        {
            "tensor": tensor,
            "read_by": string_attr(use.owner, NAME) or kind_of(use.owner),
            "op": kind_of(use.owner).removeprefix("stablehlo."),
            "reason": _reason(program, cx, use.owner),
        }
        for value, tensor in _floats(program)
        for use in value.uses
        if match(use.owner, QUANTIZE) is None
    ]


def _floats(program: Program) -> Iterator[tuple[ir.Value, str]]:
    """Float values that integers are the source of, and their names."""
    for op in program.walk():
        marker, product = match(op, DEQUANTIZE), match_contract(op)
        if marker is not None and not is_stored(program, marker):
            yield op.results[0], marker.tensor
        elif product is not None and all(isinstance(side, tuple) for side in product.sides):
            yield op.results[0], f"result of {product.name}"


def _reason(program: Program, cx: PassContext, reader: Op) -> str:
    kind, name = kind_of(reader), string_attr(reader, NAME)
    if kind == "func.return":
        return "it is an output, which is float as in the model"
    if isinstance(rule_of(reader), Contraction):
        return next((op.reason for op in cx.plan.ops if op.name == name and op.reason), "")
    lacking = f"there is no {kind.removeprefix('stablehlo.')} of integers"
    if not (kind in ELEMENTWISE or kind in SUMS or elements(program, reader)):
        return f"{lacking}: it computes in float"
    if cx.settings.placement == "early":
        return f"{lacking} with these operands: it computes in float"
    return (
        "what stands between products is computed in float here; in integers with"
        " --set placement=early"
    )
