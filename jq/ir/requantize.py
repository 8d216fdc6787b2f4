"""The marker of a contraction that gives codes: products, bias, one rescale, one rounding.

    %q = stablehlo.composite "jq.requantize" %a.codes, ..., %b.codes, ..., %bias, %multiplier
                                             (, %residual) {...}

Its decomposition is the integer arithmetic (`jq.formats.rescale`)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir import ir

from jq.formats.rescale import Rescale, ResidualScale
from jq.ir.arrays import OPS, StableHloOps
from jq.ir.build import plain
from jq.ir.contract import Contract, inside, operands_of, read_contract, sides_attributes
from jq.ir.markers import Marker, composite, marker_kind
from jq.ir.program import Program
from jq.ir.types import shape_of
from jq.ir.values import Op

REQUANTIZE = "jq.requantize"
Accumulate = Callable[[Any, list[Marker | None]], ir.Value]


@dataclass(frozen=True)
class Requantized:
    """A `jq.requantize` read back.

    Attributes:
        contract: the contraction inside.
        axis: of the result, that `bias` and `multiplier` run along.
        bias, multiplier: i32 and f32 [n] in the program.
        rescale: what happens after the sum.
        residual: codes of the result's shape, when `rescale.residual` is there."""

    contract: Contract
    axis: int
    bias: ir.Value
    multiplier: ir.Value
    rescale: Rescale
    residual: ir.Value | None


def requantize(
    program: Program,
    op: Op,
    sides: Sequence[Marker],
    accumulate: Accumulate,
    rescale: Rescale,
    axis: int,
    vectors: tuple[ir.Value, ir.Value],
    residual: ir.Value | None = None,
) -> ir.Value:
    """The codes of the float contraction `op` on codes, with what follows it, as one marker.

    Args:
        sides: per operand the marker that dequantizes it.
        accumulate: builds the i32 sum from a copy of the op, and markers of its own arguments.
        vectors: bias (i32) and multiplier (f32) along `axis` of the result."""
    extra = [*vectors, *([] if residual is None else [residual])]
    operands = [*operands_of(op, sides), *extra]
    shape = shape_of(op.results[0])

    def body(_: StableHloOps, args: Sequence[ir.Value]) -> list[ir.Value]:
        copy, markers = inside(op, sides, list(args[: len(args) - len(extra)]))
        total = accumulate(copy.opview, markers)
        copy.erase()
        bias, multiplier, *rest = args[len(args) - len(extra) :]
        total = OPS.add(total, OPS.broadcast(bias, shape, [axis]))
        factor = OPS.broadcast(multiplier, shape, [axis])
        return [rescale.codes(OPS, total, factor, *rest)]

    said = {k: v for k, v in vars(rescale).items() if k != "residual"} | {"axis": axis}
    said |= {} if rescale.residual is None else {"residual": vars(rescale.residual)}
    attributes = sides_attributes(op, sides) | said
    return composite(program, REQUANTIZE, None, attributes, operands, body)[0]


def match_requantize(op: Op) -> Requantized | None:
    """The marker that an op is, or None for any other op."""
    if marker_kind(op) != REQUANTIZE:
        return None
    attrs = ir.DictAttr(op.attributes["composite_attributes"])
    contract, (bias, multiplier, *residual) = read_contract(op, attrs)
    scale = ResidualScale(**plain(attrs["residual"])) if residual else None
    codes = {name: plain(attrs[name]) for name in ("zero_point", "low", "high")}
    rescale, axis = Rescale(**codes, residual=scale), plain(attrs["axis"])
    return Requantized(contract, axis, bias, multiplier, rescale, *(residual or [None]))
