"""The marker of a contraction that gives codes: products, bias, one rescale, one rounding.

    %q = stablehlo.composite "jq.requantize" %a.codes, ..., %b.codes, ..., %bias, %multiplier
                                             (, %residual) {...}

Its decomposition is the integer arithmetic (`jq.formats.rescale`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir import ir

from jq.formats.rescale import Rescale, ResidualScale
from jq.ir.arrays import OPS, StableHloOps
from jq.ir.build import i64_attr
from jq.ir.contract import Contract, inside, operands_of, read_contract, sides_attributes
from jq.ir.markers import Marker, composite, marker_kind
from jq.ir.program import Program
from jq.ir.types import shape_of
from jq.ir.values import Op

REQUANTIZE = "jq.requantize"
_WHOLE, _REALS = ("zero_point", "factor", "gain"), ("unit", "low", "high")  # of `ResidualScale`
Accumulate = Callable[[Any, list[Marker | None]], ir.Value]


@dataclass(frozen=True)
class Requantized:
    """A `jq.requantize` read back.

    Attributes:
        contract: the contraction inside.
        axis: of the result, that `bias` and `multiplier` run along.
        bias, multiplier: i32 and f32 [n] in the program.
        rescale: what happens after the sum.
        residual: codes of the result's shape, when `rescale.residual` is there.
    """

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
        vectors: bias (i32) and multiplier (f32) along `axis` of the result.
    """
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

    attributes = sides_attributes(op, sides) | {"axis": i64_attr(axis)} | _described(rescale)
    attrs = ir.DictAttr.get(attributes)
    return composite(program, REQUANTIZE, str(attrs), attrs, operands, body)[0]


def match_requantize(op: Op) -> Requantized | None:
    """The marker that an op is, or None for any other op."""
    if marker_kind(op) != REQUANTIZE:
        return None
    attrs = ir.DictAttr(op.attributes["composite_attributes"])
    contract, rest = read_contract(op, attrs)
    bias, multiplier, *residual = rest
    rescale = _rescale(attrs)
    return Requantized(
        contract, _value(attrs["axis"]), bias, multiplier, rescale, *(residual or [None])
    )


def _value(attr: ir.Attribute) -> int:
    return ir.IntegerAttr(attr).value


def _described(r: Rescale) -> dict[str, ir.Attribute]:
    found = {name: i64_attr(getattr(r, name)) for name in ("zero_point", "low", "high")}
    if (s := r.residual) is not None:
        whole = {name: i64_attr(getattr(s, name)) for name in _WHOLE}
        reals = {name: ir.FloatAttr.get(ir.F64Type.get(), getattr(s, name)) for name in _REALS}
        found["residual"] = ir.DictAttr.get(whole | reals)
    return found


def _rescale(attrs: ir.DictAttr) -> Rescale:
    residual = None
    if "residual" in attrs:
        given = ir.DictAttr(attrs["residual"])
        whole = {name: _value(given[name]) for name in _WHOLE}
        reals = {name: ir.FloatAttr(given[name]).value for name in _REALS}
        residual = ResidualScale(**whole, **reals)
    zero_point, low, high = (_value(attrs[name]) for name in ("zero_point", "low", "high"))
    return Rescale(zero_point, low, high, residual)
