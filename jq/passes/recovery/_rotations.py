"""Rotations of an axis, on the other side of an op that moves or scales elements."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jq.ir import Op, Program, integers, shape_of, stablehlo
from jq.ir.affine import constant_of
from jq.ir.ops import contraction, reduction
from jq.ir.ops.rules.reshape import groups

PARTS = ("slice", "pad", "dynamic_slice")
# Their other operands are asked where the result is made.
ELEMENTWISE = ("add", "subtract", "negate", "convert", "concatenate", "multiply", "divide")


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


def through(
    program: Program, op: Op, number: int, rotation: Rotation, *, back: bool = False
) -> Rotation:
    """Rotation of the result of a linear op, given that of operand `number`; `back`: of the
    operand, given that of the result. `Blocked` where the op cuts the axis, or is no linear map."""
    kind = op.operation.name.removeprefix("stablehlo.")
    before, after = shape_of(op.operands[number]), shape_of(op.results[0])
    if kind == "reshape":
        return reshaped(after, before, rotation) if back else reshaped(before, after, rotation)
    axes: Mapping[int, int] = {}  # of the operand, that are the result's as they are
    if kind in ELEMENTWISE or (kind == "select" and number):
        axes = {a: a for a in range(len(after))}
    elif kind == "transpose":
        axes = {own: result for result, own in enumerate(integers(op, "permutation"))}
    elif kind == "broadcast_in_dim":
        pairs = enumerate(integers(op, "broadcast_dimensions"))
        axes = {own: result for own, result in pairs if before[own] == after[result]}
    elif (rule := contraction(kind)) and not back:
        axes = rule.linear_axes(op, number)
    elif kind == "gather" and not number:
        axes = _gathered(op)
    elif kind == "reduce" and not number and reduction(program, op) == "add":
        kept = [a for a in range(len(before)) if a not in integers(op, "dimensions")]
        axes = {own: result for result, own in enumerate(kept)}
    elif kind in PARTS and not number:
        plain = kind != "pad" or constant_of(program, op.operands[1]) == 0
        axes = {a: a for a in range(len(after)) if plain and before[a] == after[a]}
    if back:
        axes = {result: own for own, result in axes.items()}
    if rotation.axis not in axes:
        raise Blocked(f"{kind} is no linear map that is known")
    return rotation.on(axes[rotation.axis])


def _gathered(op: Op) -> dict[int, int]:
    """Whole axes of a gather's table, and of its result."""
    d = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    table, sizes = shape_of(op.operands[0]), integers(op, "slice_sizes")
    gone = {*d.collapsed_slice_dims, *d.operand_batching_dims}
    kept = [a for a in range(len(table)) if a not in gone]
    pairs = zip(kept, d.offset_dims, strict=True)
    return {own: result for own, result in pairs if sizes[own] == table[own]}


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
