"""Rotations of an axis, on the other side of an op that moves or scales elements."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jq.ir import Op, Program, integers, shape_of, stablehlo
from jq.ir.affine import constant_of
from jq.ir.ops.lookup import contraction
from jq.ir.ops.rules.reshape import groups
from jq.ir.ops.selection import reduction

PARTS = ("slice", "pad", "dynamic_slice")


class Blocked(Exception):
    """Something on the way cannot be rotated."""


@dataclass(frozen=True)
class Rotation:
    """A rotation of an axis, seen as [outer, size, inner]."""

    axis: int
    outer: int
    size: int
    inner: int = 1

    def on(self, axis: int) -> "Rotation":
        return replace(self, axis=axis)

    def apply(self, array: np.ndarray, q: np.ndarray) -> np.ndarray:
        """f64; `q` is [size, size]."""
        moved = np.moveaxis(np.asarray(array, np.float64), self.axis, -1)
        cut = moved.reshape(*moved.shape[:-1], self.outer, self.size, self.inner)
        new = np.einsum("...oni,nm->...omi", cut, q, optimize=True)
        return np.moveaxis(new.reshape(moved.shape), -1, self.axis)


def of_operand(program: Program, op: Op, rotation: Rotation) -> Rotation:
    """Rotation of operand 0 of a linear op of one operand, given that of its result."""
    kind, before = op.operation.name.removeprefix("stablehlo."), shape_of(op.operands[0])
    after = shape_of(op.results[0])
    if kind == "transpose":
        return rotation.on(integers(op, "permutation")[rotation.axis])
    if kind == "reshape":
        return reshaped(after, before, rotation)
    if kind == "broadcast_in_dim":
        dims = integers(op, "broadcast_dimensions")
        if rotation.axis in dims and before[dims.index(rotation.axis)] == after[rotation.axis]:
            return rotation.on(dims.index(rotation.axis))
    if kind == "gather":
        return rotation.on(_gathered(op)[rotation.axis])
    if kind == "reduce" and reduction(program, op) == "add":
        kept = [a for a in range(len(before)) if a not in integers(op, "dimensions")]
        return rotation.on(kept[rotation.axis])
    if kind in ("negate", "convert"):
        return rotation
    whole = kind in PARTS and before[rotation.axis] == after[rotation.axis]
    if whole and (kind != "pad" or constant_of(program, op.operands[1]) == 0):
        return rotation
    raise Blocked(f"{kind} is no linear map that is known")


def of_result(program: Program, op: Op, number: int, rotation: Rotation) -> Rotation:
    """Rotation of a result, given that of operand `number`."""
    kind, before = op.operation.name.removeprefix("stablehlo."), shape_of(op.operands[0])
    after = shape_of(op.results[0]) if len(op.results) == 1 else ()
    if kind in ("add", "subtract", "negate", "convert", "concatenate", "multiply", "divide"):
        return rotation  # its other operands are asked where it is made
    if kind == "select" and number:
        return rotation
    if kind == "transpose":
        return rotation.on(integers(op, "permutation").index(rotation.axis))
    if kind == "reshape":
        return reshaped(before, after, rotation)
    if kind == "broadcast_in_dim":
        axis = integers(op, "broadcast_dimensions")[rotation.axis]
        if before[rotation.axis] == after[axis]:
            return rotation.on(axis)
    if rule := contraction(kind):
        axes = rule.linear_axes(op, number)
        if rotation.axis in axes:
            return rotation.on(axes[rotation.axis])
    if kind == "gather" and not number:
        found = {own: result for result, own in _gathered(op).items()}
        if rotation.axis in found:
            return rotation.on(found[rotation.axis])
    if kind == "reduce" and not number and rotation.axis not in integers(op, "dimensions"):
        kept = [a for a in range(len(before)) if a not in integers(op, "dimensions")]
        return rotation.on(kept.index(rotation.axis))
    if kind in PARTS and not number and before[rotation.axis] == after[rotation.axis]:
        return rotation
    raise Blocked(f"{kind} reads it")


def _gathered(op: Op) -> dict[int, int]:
    """Axes of a gather's result that are whole axes of its table."""
    d = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    table, sizes = shape_of(op.operands[0]), integers(op, "slice_sizes")
    gone = {*d.collapsed_slice_dims, *d.operand_batching_dims}
    kept = [a for a in range(len(table)) if a not in gone]
    pairs = zip(d.offset_dims, kept, strict=True)
    return {result: own for result, own in pairs if sizes[own] == table[own]}


def reshaped(before: Sequence[int], after: Sequence[int], rotation: Rotation) -> Rotation:
    """A rotation of `before` as one of `after`, its reshape."""
    left, right = next(g for g in groups(before, after) if rotation.axis in g[0])
    behind = math.prod(before[a] for a in left if a > rotation.axis)
    inner = rotation.inner * behind  # of the run of `size` in the group
    stride = 1
    for axis in reversed(right):
        n = after[axis]
        if inner % stride == 0 and stride * n >= inner * rotation.size:
            own = inner // stride
            if n % (own * rotation.size) == 0:
                return Rotation(axis, n // (own * rotation.size), rotation.size, own)
        stride *= n
    raise Blocked("a reshape cuts the axis")
