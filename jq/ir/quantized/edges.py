"""Markers of tensors that will be quantized: `jq.edge`."""

from jq.ir import ir
from jq.ir.markers import EDGE, composite, marker_kind
from jq.ir.program import Program
from jq.ir.values import Op


def edge(
    program: Program, x: ir.Value, name: str, *, wide: bool = False, carried: bool = False
) -> ir.Value:
    """`x` itself, as the result of an op that says: a tensor between regions, called `name`.

    `wide`: no contraction reads it, so that it may have more bits than contractions take.
    `carried`: a loop or a branch hands it on, and it has the parameters of what it becomes there.
    """
    flags = {"wide": wide, "carried": carried}
    attrs = {"tensor": ir.StringAttr.get(name)}
    attrs |= {key: ir.UnitAttr.get() for key, said in flags.items() if said}
    return composite(program, EDGE, "", ir.DictAttr.get(attrs), [x], lambda ops, args: [*args])[0]


def edge_name(op: Op) -> str | None:
    """The name that `edge` gave, or None for any other op."""
    if marker_kind(op) != EDGE:
        return None
    return ir.StringAttr(_edge_attributes(op)["tensor"]).value


def is_wide(op: Op) -> bool:
    """True if an edge may have more bits than contractions take."""
    return "wide" in _edge_attributes(op)


def is_carried(op: Op) -> bool:
    """True if a loop or a branch hands an edge on."""
    return "carried" in _edge_attributes(op)


def _edge_attributes(op: Op) -> ir.DictAttr:
    return ir.DictAttr(op.attributes["composite_attributes"])
