"""The values and weights that have to be rotated together, so that the result stays what it was.

    x' = x Q for every value x of the set: the product that makes x has Q in its weight, those that
    sum over its channels have Q^T, and the sum of squares of an RMS norm does not change

A value is rotated along one axis, seen as [outer, n, inner], along n. The set grows from one value:
from each that is in it to the ops that make it and read it. A sum needs both sides rotated, a
product of two values too, unless one of them is the same all along the axis. An op that is no
linear map ends the attempt (`Blocked`). The vector of a norm moves into the weights that read it.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jq.ir import Op, Program, dtype_of, ir, maker, shape_of
from jq.ir.affine import constant_of
from jq.ir.build import integer, integers
from jq.ir.ops import Contraction, contraction, reduction
from jq.passes.recovery._rotations import Blocked, Rotation, through


@dataclass
class Closure:
    """The set that grows from one value.

    `values` and `weights`, by name, say how each is rotated; `scales` are vectors of norms that the
    weights take in first, of their rank; `constants`, operands that are constants and get a rotated
    copy; `norms`, products with a vector (op, number of the value) that go away."""

    program: Program
    values: dict[ir.Value, Rotation] = field(default_factory=dict)
    weights: dict[str, Rotation] = field(default_factory=dict)
    scales: dict[str, np.ndarray] = field(default_factory=dict)
    constants: list[tuple[Any, int, Rotation]] = field(default_factory=list)
    norms: list[tuple[Any, int]] = field(default_factory=list)
    _uses: dict[str, set[tuple[Any, int]]] = field(default_factory=dict)
    _queue: list[ir.Value] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The size of the rotation."""
        return next(iter(self.weights.values())).size

    def rotated(self, name: str, q: np.ndarray) -> np.ndarray:
        """The rotated weight, f64."""
        scaled = np.asarray(self.program.weights[name], np.float64) * self.scales.get(name, 1.0)
        return self.weights[name].apply(scaled, q)

    def grow(self, value: ir.Value, rotation: Rotation) -> None:
        """Raises `Blocked`; then the set is of no use."""
        self.require(value, rotation)
        while self._queue:
            value = self._queue.pop()
            rotation = self.values[value]
            self._made(value.owner, rotation)
            for use in value.uses:
                self._read(use.owner, use.operand_number, rotation)
        for name, uses in self._uses.items():
            if len(uses) != sum(1 for _ in self.program.weight(name).uses):
                raise Blocked(f"{name} is read otherwise, too")

    def require(
        self, value: ir.Value, rotation: Rotation, reader: tuple[Any, int] | None = None
    ) -> None:
        """Adds a value."""
        if dtype_of(value).kind not in "fV":
            raise Blocked("not a float")
        name = self.program.weight_name(value)
        known = self.values.get(value) if name is None else self.weights.get(name)
        if known is not None and known != rotation:
            raise Blocked("rotated in two ways")
        if name is not None:
            if reader is None:
                raise Blocked("a weight is a value")
            self.weights[name] = rotation
            self._uses.setdefault(name, set()).add((reader[0].operation, reader[1]))
        elif known is None:
            owner = maker(value)
            if owner is None or owner.operation.block != self.program.body:
                raise Blocked("an input, or inside a loop")
            self.values[value] = rotation
            self._queue.append(value)

    # What makes a value

    def _made(self, op: Op, rotation: Rotation) -> None:
        kind = op.operation.name.removeprefix("stablehlo.")
        operands = list(op.operands)
        if kind in ("add", "subtract"):
            for number in (0, 1):
                self._term(op, number, rotation)
        elif kind in ("multiply", "divide"):
            self._operand(op, self._rotated_side(op, rotation.axis), rotation)
        elif kind == "select":
            if not self._same_along(operands[0], rotation.axis):
                raise Blocked("a choice by channel")
            for number in (1, 2):
                self._term(op, number, rotation)
        elif (rule := contraction(kind)) and len(rule.roles(op)) == 2:
            side, axis = _side(op, rule, rotation.axis)
            self._operand(op, side, rotation.on(axis))
        elif kind == "concatenate":
            if integer(op, "dimension") == rotation.axis:
                raise Blocked("joined along the axis")
            for number in range(len(operands)):
                self._operand(op, number, rotation)
        else:
            self._operand(op, 0, through(self.program, op, 0, rotation, back=True))

    def _operand(self, op: Op, number: int, rotation: Rotation) -> None:
        self.require(op.operands[number], rotation, (op, number))

    def _term(self, op: Op, number: int, rotation: Rotation) -> None:
        """Rotates a term of a sum: a constant gets a rotated copy."""
        constant = constant_of(self.program, op.operands[number])
        if constant is None:
            self._operand(op, number, rotation)
        elif constant.any() and sum(n > 1 for n in constant.shape) > 1:
            raise Blocked("a constant of several axes")
        elif constant.any():
            self.constants.append((op.operation, number, rotation))

    def _rotated_side(self, op: Op, axis: int) -> int:
        a, b = op.operands
        kind = op.operation.name
        if self._same_along(b, axis):
            return 0
        if kind == "stablehlo.multiply" and self._same_along(a, axis):
            return 1
        raise Blocked("a product channel by channel")

    def _same_along(self, value: ir.Value, axis: int, depth: int = 6) -> bool:
        """True if all values along an axis are the same, by construction."""
        constant = constant_of(self.program, value)
        if constant is not None:
            return constant.ndim == 0 or constant.shape[axis] == 1
        if shape_of(value)[axis] == 1:
            return True
        op = maker(value)
        if op is None or not depth:
            return False
        if op.operation.name == "stablehlo.broadcast_in_dim":
            dims = integers(op, "broadcast_dimensions")
            return axis not in dims or shape_of(op.operands[0])[dims.index(axis)] == 1
        elementwise = all(shape_of(v) == shape_of(value) for v in op.operands)
        simple = op.operation.name in _POINTWISE and elementwise
        return simple and all(self._same_along(v, axis, depth - 1) for v in op.operands)

    # What reads a value

    def _read(self, op: Op, number: int, rotation: Rotation) -> None:
        if op.operation.block != self.program.body:
            raise Blocked("read inside a loop or a branch")
        if len(op.results) != 1:
            raise Blocked("returned, or an op of several results")
        kind, operands = op.operation.name.removeprefix("stablehlo."), op.operands
        if kind == "multiply" and operands[0] == operands[1]:
            return self._squared(op, rotation)
        if kind == "multiply" and self._norm(op, number, rotation):
            return None
        if (pair := _summed_with(op, number, rotation.axis)) is not None:
            return self._operand(op, 1 - number, rotation.on(pair))
        return self.require(op.results[0], through(self.program, op, number, rotation))

    def _squared(self, op: Op, rotation: Rotation) -> None:
        """Refuses readers of other than the sum of squares over all channels."""
        for use in op.results[0].uses:
            inner = use.owner
            sums = inner.operation.name == "stablehlo.reduce"
            sums = sums and reduction(self.program, inner) == "add"
            if not sums or rotation.axis not in integers(inner, "dimensions"):
                raise Blocked("squares that are not summed")

    def _norm(self, op: Op, number: int, rotation: Rotation) -> bool:
        """A product with a vector of channels that weights after it can take in."""
        vector = constant_of(self.program, op.operands[1 - number])
        if vector is None or vector.ndim == 0 or vector.shape[rotation.axis] == 1:
            return False
        if vector.size != vector.shape[rotation.axis]:
            raise Blocked("a constant of several axes")
        for use in op.results[0].uses:
            reader, k = use.owner, use.operand_number
            pair = _summed_with(reader, k, rotation.axis)
            other = None if pair is None else reader.operands[1 - k]
            name = None if other is None else self.program.weight_name(other)
            if pair is None or name is None or reader.operation.block != self.program.body:
                raise Blocked("a vector of channels that no weight can take in")
            if sum(1 for _ in self.program.weight(name).uses) != 1:
                raise Blocked("a weight that something else reads")
            self._operand(reader, 1 - k, rotation.on(pair))
            rank = len(shape_of(reader.operands[1 - k]))
            self.scales[name] = vector.reshape([-1 if a == pair else 1 for a in range(rank)])
        self.norms.append((op.operation, number))
        return True


_POINTWISE = {
    f"stablehlo.{name}"
    for name in ("add", "subtract", "multiply", "divide", "rsqrt", "sqrt", "maximum", "convert")
}


def _summed_with(op: Op, number: int, axis: int) -> int | None:
    """The other operand's axis that is summed together with this one."""
    rule = contraction(op.operation.name)
    return rule.summed_with(op, number).get(axis) if rule else None


def _side(op: Op, rule: Contraction, axis: int) -> tuple[int, int]:
    """The operand and its axis that a result's axis comes from alone."""
    for role in rule.roles(op):
        for own, result in rule.linear_axes(op, role.index).items():
            if result == axis:
                return role.index, own
    raise Blocked("an axis of batches or groups")
