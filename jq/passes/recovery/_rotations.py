"""Which values must be rotated together so that a rotation goes away: found by going along all that
makes them and all that reads them.

    x' = x Q for every value x of the set; what makes it has Q in its weight, what sums over the
    channels Q^T, and the sum of squares over them (an RMS norm) is what it was

A value is rotated along one axis, seen as [outer, n, inner], along n. The set is closed: sums need
both sides rotated, products of two values both of them, or one that is the same along the axis.
Whatever is no linear map blocks it. The vector of a norm moves into the weights behind it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jq.ir import Op, Program, dtype_of, ir, shape_of, stablehlo
from jq.ir.affine import constant_of
from jq.ir.build import integer, integers
from jq.ir.values import maker
from jq.ops.convolution import Layout, groups_of
from jq.ops.dot_general import Dims
from jq.ops.reshape import groups
from jq.ops.selection import reduction


class Blocked(Exception):
    """Something on the way cannot be rotated."""


@dataclass(frozen=True)
class Rotation:
    """Of an axis, seen as [outer, size, inner]."""

    axis: int
    outer: int
    size: int
    inner: int = 1

    def on(self, axis: int) -> Rotation:
        return replace(self, axis=axis)

    def apply(self, array: np.ndarray, q: np.ndarray) -> np.ndarray:
        """f64; `q` is [size, size]."""
        moved = np.moveaxis(np.asarray(array, np.float64), self.axis, -1)
        cut = moved.reshape(*moved.shape[:-1], self.outer, self.size, self.inner)
        new = np.einsum("...oni,nm->...omi", cut, q, optimize=True)
        return np.moveaxis(new.reshape(moved.shape), -1, self.axis)


@dataclass
class Closure:
    """The set that grows from one value.

    Attributes:
        values: by value, how it is rotated.
        weights: by name, alike; `scales`: vectors of norms that they take in first, of their rank.
        constants: operands that are constants and get a rotated copy.
        norms: products with a vector (op, number of the value) that go away.
    """

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
        """Of the turn."""
        return next(iter(self.weights.values())).size

    def rotated(self, name: str, q: np.ndarray) -> np.ndarray:
        """What a weight becomes, f64."""
        scaled = np.asarray(self.program.weights[name], np.float64) * self.scales.get(name, 1.0)
        return self.weights[name].apply(scaled, q)

    def grow(self, value: ir.Value, turn: Rotation) -> None:
        """Raises `Blocked`; then the set is of no use."""
        self.require(value, turn)
        while self._queue:
            value = self._queue.pop()
            turn = self.values[value]
            self._made(value.owner, turn)
            for use in value.uses:
                self._read(use.owner, use.operand_number, turn)
        for name, uses in self._uses.items():
            if len(uses) != sum(1 for _ in self.program.weight(name).uses):
                raise Blocked(f"{name} is read otherwise, too")

    def require(
        self, value: ir.Value, turn: Rotation, reader: tuple[Any, int] | None = None
    ) -> None:
        """Adds a value."""
        if dtype_of(value).kind not in "fV":
            raise Blocked("not a float")
        name = self.program.weight_name(value)
        known = self.values.get(value) if name is None else self.weights.get(name)
        if known is not None and known != turn:
            raise Blocked("rotated in two ways")
        if name is not None:
            if reader is None:
                raise Blocked("a weight is a value")
            self.weights[name] = turn
            self._uses.setdefault(name, set()).add((reader[0].operation, reader[1]))
        elif known is None:
            owner = maker(value)
            if owner is None or owner.operation.block != self.program.body:
                raise Blocked("an input, or inside a loop")
            self.values[value] = turn
            self._queue.append(value)

    # What makes a value

    def _made(self, op: Op, turn: Rotation) -> None:
        kind = op.operation.name.removeprefix("stablehlo.")
        operands = list(op.operation.operands)
        if kind in ("add", "subtract"):
            for number in (0, 1):
                self._term(op, number, turn)
        elif kind in ("multiply", "divide"):
            self._operand(op, self._rotated_side(op, turn.axis), turn)
        elif kind == "select":
            if not self._same_along(operands[0], turn.axis):
                raise Blocked("a choice by channel")
            for number in (1, 2):
                self._term(op, number, turn)
        elif kind == "dot_general":
            side, axis = _side(op, turn.axis)
            self._operand(op, side, turn.on(axis))
        elif kind == "convolution":
            d = Layout.of(op)
            if turn.axis != d.output_feature or not _plain(op):
                raise Blocked("a convolution in groups")
            self._operand(op, 1, turn.on(d.kernel_out))
        elif kind == "concatenate":
            if integer(op, "dimension") == turn.axis:
                raise Blocked("joined along the axis")
            for number in range(len(operands)):
                self._operand(op, number, turn)
        else:
            self._operand(op, 0, _back(self.program, op, turn))

    def _operand(self, op: Op, number: int, turn: Rotation) -> None:
        self.require(op.operation.operands[number], turn, (op, number))

    def _term(self, op: Op, number: int, turn: Rotation) -> None:
        """Of a sum: a constant gets a rotated copy."""
        value = op.operation.operands[number]
        constant = constant_of(self.program, value)
        if constant is None:
            self._operand(op, number, turn)
        elif constant.any() and sum(n > 1 for n in constant.shape) > 1:
            raise Blocked("a constant of several axes")
        elif constant.any():
            self.constants.append((op.operation, number, turn))

    def _rotated_side(self, op: Op, axis: int) -> int:
        a, b = op.operation.operands
        kind = op.operation.name
        if self._same_along(b, axis):
            return 0
        if kind == "stablehlo.multiply" and self._same_along(a, axis):
            return 1
        raise Blocked("a product channel by channel")

    def _same_along(self, value: ir.Value, axis: int, depth: int = 6) -> bool:
        """Whether all values along an axis are the same, by construction."""
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
            return axis not in dims or shape_of(op.operation.operands[0])[dims.index(axis)] == 1
        elementwise = all(shape_of(v) == shape_of(value) for v in op.operation.operands)
        simple = op.operation.name in _POINTWISE and elementwise
        return simple and all(self._same_along(v, axis, depth - 1) for v in op.operation.operands)

    # What reads a value

    def _read(self, op: Op, number: int, turn: Rotation) -> None:
        if op.operation.block != self.program.body:
            raise Blocked("read inside a loop or a branch")
        if len(op.operation.results) != 1:
            raise Blocked("returned, or an op of several results")
        kind, operands = op.operation.name.removeprefix("stablehlo."), op.operation.operands
        if kind == "multiply" and operands[0] == operands[1]:
            return self._squared(op, turn)
        if kind == "multiply" and self._norm(op, number, turn):
            return None
        if kind == "dot_general" and (pair := _contracted(op, number, turn.axis)) is not None:
            return self._operand(op, 1 - number, turn.on(pair))
        if kind == "convolution":
            d = Layout.of(op)
            if (number, turn.axis) == (0, d.input_feature) and _plain(op):
                return self._operand(op, 1, turn.on(d.kernel_in))
            if (number, turn.axis) == (1, d.kernel_out) and _plain(op):
                return self.require(op.operation.results[0], turn.on(d.output_feature))
            if (number, turn.axis) == (1, d.kernel_in) and _plain(op):
                return self.require(operands[0], turn.on(d.input_feature))
            raise Blocked("a convolution over the axis")
        return self.require(op.operation.results[0], _forth(self.program, op, number, turn))

    def _squared(self, op: Op, turn: Rotation) -> None:
        """Only the sum of squares over all channels may be read."""
        for use in op.operation.results[0].uses:
            inner = use.owner
            whole = inner.operation.name == "stablehlo.reduce" and turn.axis in integers(
                inner, "dimensions"
            )
            if not whole or reduction(self.program, inner) != "add":
                raise Blocked("squares that are not summed")

    def _norm(self, op: Op, number: int, turn: Rotation) -> bool:
        """A product with a vector of channels that weights behind it can take in."""
        vector = constant_of(self.program, op.operation.operands[1 - number])
        if vector is None or vector.ndim == 0 or vector.shape[turn.axis] == 1:
            return False
        if vector.size != vector.shape[turn.axis]:
            raise Blocked("a constant of several axes")
        for use in op.operation.results[0].uses:
            reader, k = use.owner, use.operand_number
            pair, name = None, None
            if reader.operation.name == "stablehlo.dot_general":
                pair = _contracted(reader, k, turn.axis)
                name = self.program.weight_name(reader.operation.operands[1 - k])
            if pair is None or name is None or reader.operation.block != self.program.body:
                raise Blocked("a vector of channels that no weight can take in")
            if sum(1 for _ in self.program.weight(name).uses) != 1:
                raise Blocked("a weight that something else reads")
            self._operand(reader, 1 - k, turn.on(pair))
            rank = len(shape_of(reader.operation.operands[1 - k]))
            self.scales[name] = vector.reshape([-1 if a == pair else 1 for a in range(rank)])
        self.norms.append((op.operation, number))
        return True


_POINTWISE = {
    f"stablehlo.{name}"
    for name in ("add", "subtract", "multiply", "divide", "rsqrt", "sqrt", "maximum", "convert")
}


def _plain(op: Op) -> bool:
    return groups_of(op) == groups_of(op, "batch_group_count") == 1


def _contracted(op: Op, number: int, axis: int) -> int | None:
    """The other operand's axis that is summed together with this one."""
    return next((p[1 - number] for p in Dims.of(op).contract if p[number] == axis), None)


def _side(op: Op, axis: int) -> tuple[int, int]:
    """The operand and its axis that a result's axis comes from alone."""
    dims, shapes = Dims.of(op), [shape_of(v) for v in op.operation.operands]
    for side in (0, 1):
        free = dims.free(side, len(shapes[side]))
        for own, result in dims.result_axes(side, *shapes).items():
            if result == axis and own in free:
                return side, own
    raise Blocked("an axis of batches")


def _back(program: Program, op: Op, turn: Rotation) -> Rotation:
    """How operand 0 of a linear op of one operand is rotated when its result is."""
    kind, before = op.operation.name.removeprefix("stablehlo."), shape_of(op.operation.operands[0])
    after = shape_of(op.operation.results[0])
    if kind == "transpose":
        return turn.on(integers(op, "permutation")[turn.axis])
    if kind == "reshape":
        return _moved(after, before, turn)
    if kind == "broadcast_in_dim":
        dims = integers(op, "broadcast_dimensions")
        if turn.axis in dims and before[dims.index(turn.axis)] == after[turn.axis]:
            return turn.on(dims.index(turn.axis))
    if kind == "gather":
        return turn.on(_gathered(op)[turn.axis])
    if kind == "reduce" and reduction(program, op) == "add":
        kept = [a for a in range(len(before)) if a not in integers(op, "dimensions")]
        return turn.on(kept[turn.axis])
    if kind in ("negate", "convert"):
        return turn
    whole = kind in ("slice", "pad", "dynamic_slice") and before[turn.axis] == after[turn.axis]
    if whole and (kind != "pad" or constant_of(program, op.operation.operands[1]) == 0):
        return turn
    raise Blocked(f"{kind} is no linear map that is known")


def _forth(program: Program, op: Op, number: int, turn: Rotation) -> Rotation:
    """How a result is rotated when operand `number` is."""
    kind, before = op.operation.name.removeprefix("stablehlo."), shape_of(op.operation.operands[0])
    after = shape_of(op.operation.results[0]) if len(op.operation.results) == 1 else ()
    if kind in ("add", "subtract", "negate", "convert", "concatenate", "multiply", "divide"):
        return turn  # its other operands are asked where it is made
    if kind == "select" and number:
        return turn
    if kind == "transpose":
        return turn.on(integers(op, "permutation").index(turn.axis))
    if kind == "reshape":
        return _moved(before, after, turn)
    if kind == "broadcast_in_dim":
        axis = integers(op, "broadcast_dimensions")[turn.axis]
        if before[turn.axis] == after[axis]:
            return turn.on(axis)
    if kind == "dot_general":
        dims, shapes = Dims.of(op), [shape_of(v) for v in op.operation.operands]
        if turn.axis in dims.free(number, len(shapes[number])):
            return turn.on(dims.result_axes(number, *shapes)[turn.axis])
    if kind == "gather" and not number:
        found = {own: result for result, own in _gathered(op).items()}
        if turn.axis in found:
            return turn.on(found[turn.axis])
    if kind == "reduce" and not number and turn.axis not in integers(op, "dimensions"):
        kept = [a for a in range(len(before)) if a not in integers(op, "dimensions")]
        return turn.on(kept.index(turn.axis))
    whole = kind in ("slice", "pad", "dynamic_slice") and not number
    if whole and before[turn.axis] == after[turn.axis]:
        return turn
    raise Blocked(f"{kind} reads it")


def _gathered(op: Op) -> dict[int, int]:
    """Axes of a gather's result that are whole axes of its table."""
    d = stablehlo.GatherDimensionNumbers(op.operation.attributes["dimension_numbers"])
    table, sizes = shape_of(op.operation.operands[0]), integers(op, "slice_sizes")
    gone = {*d.collapsed_slice_dims, *d.operand_batching_dims}
    kept = [a for a in range(len(table)) if a not in gone]
    pairs = zip(d.offset_dims, kept, strict=True)
    return {result: own for result, own in pairs if sizes[own] == table[own]}


def _moved(before: Sequence[int], after: Sequence[int], turn: Rotation) -> Rotation:
    """A turn of `before` as one of `after`, its reshape."""
    left, right = next(g for g in groups(before, after) if turn.axis in g[0])
    behind = math.prod(before[a] for a in left if a > turn.axis)
    inner = turn.inner * behind  # of the run of `size` in the group
    stride = 1
    for axis in reversed(right):
        n = after[axis]
        if inner % stride == 0 and stride * n >= inner * turn.size:
            own = inner // stride
            if n % (own * turn.size) == 0:
                return Rotation(axis, n // (own * turn.size), turn.size, own)
        stride *= n
    raise Blocked("a reshape cuts the axis")
