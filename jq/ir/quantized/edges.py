"""Markers of tensors that will be quantized: `jq.edge`."""

from dataclasses import dataclass, field
from typing import Any

from jq.base.registry import unused
from jq.ir import NAME, Op, Program, at, context, ir, kind_of, maker, string_attr
from jq.ir.markers import DEQUANTIZE, EDGE, composite, marker_kind, match


def edge(
    program: Program, x: ir.Value, name: str, *, wide: bool = False, carried: bool = False
) -> ir.Value:
    """`x` itself, as the result of an op that says: a tensor between regions, called `name`.

    `wide`: no contraction reads it, so that it may have more bits than contractions take.
    `carried`: a loop or a branch hands it on, and it has the parameters of what it becomes there.
    """
    flags = {"wide": wide, "carried": carried}
    attrs = {"tensor": name} | {key: ir.UnitAttr.get() for key, said in flags.items() if said}
    return composite(program, EDGE, "", attrs, [x], lambda ops, args: [*args])[0]


def edge_name(op: Op) -> str | None:
    """The name that `edge` gave, or None for any other op."""
    return None if marker_kind(op) != EDGE else ir.StringAttr(_edge_attributes(op)["tensor"]).value


def is_wide(op: Op) -> bool:
    """True if an edge may have more bits than contractions take."""
    return "wide" in _edge_attributes(op)


def is_carried(op: Op) -> bool:
    """True if a loop or a branch hands an edge on."""
    return "carried" in _edge_attributes(op)


def _edge_attributes(op: Op) -> ir.DictAttr:
    return ir.DictAttr(op.attributes["composite_attributes"])


MOVES = ("stablehlo.reshape", "stablehlo.transpose")
REPEATS = (*MOVES, "stablehlo.broadcast_in_dim")


def _behind(value: ir.Value, kinds: tuple[str, ...]) -> Op | None:
    """The op whose codes these are, moved as they are."""
    made = maker(value)
    while made is not None and kind_of(made) in kinds:
        made = maker(made.operands[0])
    return made


@dataclass
class Edges:
    """The edges that are marked so far.

    Attributes:
        made: by the value, whether it is wide, and whether a loop or a branch hands it on.
        names: theirs, each once: calibration observes edges by name."""

    program: Program
    made: dict[tuple[ir.Value, bool, bool], ir.Value] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def need(self, op: Op, index: int, *, wide: bool = False, carried: bool = False) -> None:
        """The op reads an edge after its operand, one for all that want the same."""
        value = op.operands[index]
        moved, own = (_behind(value, kinds) for kinds in (MOVES, REPEATS))
        if (moved and edge_name(moved)) or (own and match(own, DEQUANTIZE)):
            return
        key = value, wide, carried
        if key not in self.made:
            with context(), self._behind(value):
                name = self._name(value)
                self.made[key] = edge(self.program, value, name, wide=wide, carried=carried)
        op.operands[index] = self.made[key]

    def _behind(self, value: ir.Value) -> Any:
        if maker(value) is None:
            return at(value.owner.operations[0])
        return at(value.owner, after=True)

    def _name(self, value: ir.Value) -> str:
        if maker(value, "stablehlo.convert") is not None:
            x = value.owner.operands[0]
            value = x if x in list(self.program.body.arguments) else value
        if maker(value) is None:
            number = ir.BlockArgument(value).arg_number
            if weight := self.program.weight_name(value):
                base = f"weight {weight}"
            elif value.owner == self.program.body:
                base = f"input {self.program.inputs[number].name}"
            else:
                base = f"{string_attr(value.owner.owner, NAME) or 'loop'} carry {number}"
        else:
            base = f"{string_attr(value.owner, NAME) or kind_of(value.owner)} result"
        name = unused(base, self.names.__contains__)
        self.names.add(name)
        return name
