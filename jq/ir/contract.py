"""The marker of a contraction on codes: one op that holds products, corrections and rescale.

    %y = stablehlo.composite "jq.contract" %a.codes, %a.scale, %b.codes, %b.scale {...}

Its decomposition is the integer arithmetic; a target may put a kernel in its place."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from jq.formats import Encoding
from jq.ir.arrays import OPS, StableHloOps
from jq.ir.build import NAME, attributes_of, copied, plain, string_attr
from jq.ir.markers import Marker, composite, encoding_attributes, encoding_of, marker_kind
from jq.ir.program import Program
from jq.ir.types import dtype_of, shape_of
from jq.ir.values import Op

CONTRACT = "jq.contract"
Side = tuple[Encoding, dict[str, Any]] | Any  # encoding and parts, or a float value
Lower = Callable[[Any, list[Marker | None]], ir.Value | None]


@dataclass(frozen=True)
class Contract:
    """A `jq.contract` read back.

    Attributes:
        name, op_type: the contraction's name and op (`dot_general`, ...).
        attributes: the attributes of the contraction that it replaces (dimension numbers, ...).
        shapes: shapes of the operands that are contracted.
        sides: per operand its encoding and parts by name, or the float value itself.
        tensors: per operand the name of the tensor that was quantized; empty for a float value."""

    op: Op
    name: str
    op_type: str
    attributes: dict[str, ir.Attribute]
    shapes: tuple[tuple[int, ...], ...]
    sides: tuple[Side, ...]
    tensors: tuple[str, ...]


def contract(
    program: Program, op: Op, sides: Sequence[Marker | None], lower: Lower
) -> ir.Value | None:
    """The float contraction `op` on codes, as one marker; None when `lower` declines.

    Args:
        sides: per operand the marker that dequantizes it, None for a float operand.
        lower: builds the result from a copy of the op and markers of the function's arguments."""
    operands, declined = operands_of(op, sides), False

    def body(_: StableHloOps, args: Sequence[ir.Value]) -> list[ir.Value]:
        nonlocal declined
        copy, markers = inside(op, sides, list(args))
        result = lower(copy.opview, markers)
        if result is None:
            declined = True
            return [copy.results[0]]
        copy.erase()
        return [result]

    result = composite(program, CONTRACT, None, sides_attributes(op, sides), operands, body)[0]
    if declined:
        result.owner.erase()
        return None
    return result


def operands_of(op: Op, sides: Sequence[Marker | None]) -> list[ir.Value]:
    """The operands of a marker of `op`: parts of quantized operands, and the others."""
    pairs = zip(op.operands, sides, strict=True)
    return [v for x, side in pairs for v in ([x] if side is None else side.parts.values())]


def inside(
    op: Op, sides: Sequence[Marker | None], args: list[ir.Value]
) -> tuple[ir.Operation, list[Marker | None]]:
    """A copy of the op inside the function; quantized operands are known by their markers only."""
    inputs: list[ir.Value] = []
    markers: list[Marker | None] = []
    for x, side in zip(op.operands, sides, strict=True):
        if side is None:
            inputs.append(args.pop(0))
            markers.append(None)
            continue
        parts = {name: args.pop(0) for name in side.parts}
        blank = OPS.constant(np.zeros((), dtype_of(x)))
        inputs.append(OPS.broadcast(blank, shape_of(x), ()))
        markers.append(replace(side, parts=parts))
    return copied(op, inputs), markers


def sides_attributes(op: Op, sides: Sequence[Marker | None]) -> dict[str, Any]:
    """The attributes from which `read_contract` restores `op` and its sides."""
    return {
        "name": string_attr(op, NAME) or "",
        "op": op.operation.name,
        "attributes": attributes_of(op),
        "sides": [
            ir.UnitAttr.get() if s is None else encoding_attributes(s.encoding, s.parts, s.tensor)
            for s in sides
        ],
        "shapes": [shape_of(x) for x in op.operands],
    }


def match_contract(op: Op) -> Contract | None:
    """The contraction that a `jq.contract` op stands for, or None for any other op."""
    if marker_kind(op) != CONTRACT:
        return None
    return read_contract(op, ir.DictAttr(op.attributes["composite_attributes"]))[0]


def read_contract(op: Op, attrs: ir.DictAttr) -> tuple[Contract, list[ir.Value]]:
    """The contraction inside of a marker, and the operands that are not its own."""
    rest = list(op.operands)
    sides: list[Side] = []
    tensors: list[str] = []
    for side in ir.ArrayAttr(attrs["sides"]):
        if isinstance(side, ir.UnitAttr):
            sides.append(rest.pop(0))
            tensors.append("")
            continue
        tensors.append(plain(side["tensor"]))
        sides.append((encoding_of(side), {n: rest.pop(0) for n in plain(side["parts"])}))
    found = Contract(
        op=op,
        name=plain(attrs["name"]),
        op_type=plain(attrs["op"]).removeprefix("stablehlo."),
        attributes={a.name: a.attr for a in attrs["attributes"]},
        shapes=plain(attrs["shapes"]),
        sides=tuple(sides),
        tensors=tuple(tensors),
    )
    return found, rest
