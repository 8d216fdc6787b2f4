"""Dequantizes of a program with markers: where integers become floats again, and why."""

from collections.abc import Iterator

from jq.ir import Op, Program, ir
from jq.ir.build import NAME, string_attr
from jq.ir.contract import match_contract
from jq.ir.markers import DEQUANTIZE, QUANTIZE, match
from jq.ir.ops.base import Contraction
from jq.ir.ops.elementwise import ELEMENTWISE
from jq.ir.ops.lookup import rule_of
from jq.ir.ops.selection import elements
from jq.ir.values import kind_of
from jq.passes.base import PassContext
from jq.passes.integer._ops import PRODUCTS_AND_SUMS
from jq.planning.operands import is_stored

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
            yield op.results[0], product.name


def _reason(program: Program, cx: PassContext, reader: Op) -> str:
    kind, name = kind_of(reader), string_attr(reader, NAME)
    if kind == "func.return":
        return "the program returns it"
    if isinstance(rule_of(reader), Contraction):
        return next((op.reason for op in cx.plan.ops if op.name == name and op.reason), "")
    short = kind.removeprefix("stablehlo.")
    known = kind in ELEMENTWISE or kind in SUMS or elements(program, reader)
    if not known:
        return f"{short} has no integer form"
    if cx.settings.placement == "early":
        return f"{short} has no integer form here"
    placement = cx.settings.placement
    return f"placement={placement} computes it in float; placement=early computes it in integers"
