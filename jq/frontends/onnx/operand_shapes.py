"""Checks the shapes of a call's operands against those that the operator has.

An operator's `takes` has a pattern for each operand whose shape is fixed:

    a[... K] b[N blocks size] bias[N]?                    K is the attribute, N a size met before

A pattern is sizes with spaces between, and alternatives with `/` between. A size is a number, a
name, a product `4*H` or a choice `1|B`; `...` are any axes. A name is the attribute of that name, a
size that a rule gives, or the size where it is met first. Where a pattern has one element, an
operand of one element fits.

A rule gives sizes that follow from others, and patterns that depend on more than sizes. They are in
`operators.shape_rules`."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jq.base.errors import UserError
from jq.frontends.onnx.registry import Call, Operator

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operands:
    """The input of a rule: shapes of the operands that are there, and the attributes."""

    shapes: Mapping[str, Shape]
    types: Mapping[str, Any]
    call: Call

    def get(self, name: str, default: Any = 0) -> Any:
        return self.call.attributes.get(name, default)

    def refuse(self, reason: str) -> UserError:
        given = ", ".join(f"{name} {list(shape)}" for name, shape in self.shapes.items())
        return self.call.refuse(f"{reason} (of {given})")


Found = Mapping[str, str | int]  # a pattern by its operand, or a size by its name
Rule = Callable[[Operands], Found]
R = TypeVar("R", bound=Rule)
RULES: dict[tuple[str, str], Rule] = {}


def shapes(domain: str, *names: str) -> Callable[[R], R]:
    """Registers the rule of these operators."""

    def register(rule: R) -> R:
        RULES.update({(domain, name): rule for name in names})
        return rule

    return register


def require_shapes(op: Operator, call: Call, args: Sequence[Any]) -> None:
    """
    Raises:
        UserError: an operand has another shape; names node, operand, and both shapes."""
    patterns = {o.name: o.shape for o in op.operands if o.shape is not None}
    rule = RULES.get((call.node.domain, call.node.op))
    if rule is None and not patterns:
        return
    names = [operand.name for operand in op.operands]
    names += [f"input {i}" for i in range(len(names), len(args))]
    given = {n: x for n, x in zip(names, args, strict=True) if hasattr(x, "shape")}
    shapes = {n: tuple(int(size) for size in x.shape) for n, x in given.items()}
    sizes = {k: v for k, v in call.attributes.items() if isinstance(v, int)}
    found = rule(Operands(shapes, {n: x.dtype for n, x in given.items()}, call)) if rule else {}
    for name, value in found.items():
        if isinstance(value, int):
            sizes[name] = value
        else:
            patterns[name] = value
    for at, name in enumerate(names):
        if name in shapes and name in patterns:
            _require(call, name, at, shapes[name], patterns[name], sizes)


def _require(
    call: Call, name: str, at: int, shape: Shape, pattern: str, sizes: dict[str, int]
) -> None:
    ways = [_Way(way.split(), sizes) for way in pattern.split("/")]
    for way in ways:
        if (bound := way.matched(shape)) is not None:
            sizes.update(bound)
            return
    wanted = " or ".join(dict.fromkeys(str(way) for way in ways))
    tensor = call.node.inputs[at] if at < len(call.node.inputs) else ""
    where = f"its operand {name!r}" + (f" ({tensor})" if tensor not in ("", name) else "")
    raise call.refuse(f"{where} has shape [{', '.join(map(str, shape))}], and not {wanted}")


@dataclass(frozen=True)
class _Way:
    """One alternative of a pattern, with the sizes that are known so far."""

    axes: list[str]
    known: dict[str, int]
    found: dict[str, int] = field(default_factory=dict)

    def matched(self, shape: Shape) -> dict[str, int] | None:
        """Sizes of the names that it binds; None where the shape is another."""
        axes = self.axes
        if "..." in axes:
            at = axes.index("...")
            spare = len(shape) - len(axes) + 1
            if spare < 0:
                return None
            shape, axes = shape[:at] + shape[at + spare :], axes[:at] + axes[at + 1 :]
        elif math.prod(shape) == 1 and all(1 in (self._sizes(axis) or ()) for axis in axes):
            return {}
        if len(shape) != len(axes):
            return None
        for axis, n in zip(axes, shape, strict=True):
            wanted = self._sizes(axis)
            if wanted is None:
                self.found[axis] = n
            elif n not in wanted:
                return None
        return self.found

    def _sizes(self, axis: str) -> list[int] | None:
        """The sizes that an axis may have; None for a name that is met first."""
        if axis not in self.known | self.found and axis.isidentifier():
            return None
        return [math.prod(map(self._size, way.split("*"))) for way in axis.split("|")]

    def _size(self, text: str) -> int:
        return int(text) if text.isdigit() else (self.known | self.found).get(text, -1)

    def __str__(self) -> str:
        def shown(axis: str) -> str:
            wanted = None if axis == "..." else self._sizes(axis)
            return axis if wanted is None else " or ".join(str(n) for n in dict.fromkeys(wanted))

        return f"[{', '.join(map(shown, self.axes))}]"
