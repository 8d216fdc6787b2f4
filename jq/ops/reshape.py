"""reshape(dequantize(parts)) -> dequantize(reshape of each part), where blocks stay blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jq.ir import Program, ir, shape_of
from jq.ir.markers import Marker
from jq.ops.base import Axes, Movement
from jq.ops.integer import OPS
from jq.ops.movement import leading, plain, rebuilt

Group = tuple[tuple[int, ...], tuple[int, ...]]  # axes before, axes after, of equal size


def groups(before: Sequence[int], after: Sequence[int]) -> list[Group]:
    """The finest runs of axes with equal products: [2, 3, 4] to [6, 4] is (0, 1)-(0), (2)-(1)."""
    out: list[Group] = []
    i = j = 0
    while i < len(before) or j < len(after):
        left: list[int] = []
        right: list[int] = []
        a = b = 1
        while True:
            if i < len(before) and (a < b or not left or (a == b and before[i] == 1)):
                a *= before[i]
                left.append(i)
                i += 1
            elif j < len(after) and (b < a or not right or (a == b and after[j] == 1)):
                b *= after[j]
                right.append(j)
                j += 1
            else:
                break
        out.append((tuple(left), tuple(right)))
    return out


class Reshape(Movement):
    op = "reshape"

    def back(self, op: Any, axes: Axes) -> Axes:
        before, after = shape_of(op.operands[0]), shape_of(op.results[0])
        found: set[int] = set()
        for left, right in groups(before, after):
            if any(after[a] > 1 for a in axes.intersection(right)):
                found.update(a for a in left if before[a] > 1)
        return frozenset(found)

    def sink(self, program: Program, op: Any, marker: Marker) -> ir.Value | None:
        before, after = marker.encoding.shape, shape_of(op.results[0])
        block = new_block(before, after, marker.encoding.block)
        if block is None:
            return None
        if plain(marker):
            grid = marker.encoding.with_shape(after, block).grid
            parts = {
                k: OPS.reshape(v, after if k == "codes" else grid) for k, v in marker.parts.items()
            }
            return rebuilt(program, marker, after, block, parts)
        return self._leading_ones(program, marker, after, block)

    def _leading_ones(
        self, program: Program, marker: Marker, after: tuple[int, ...], block: tuple[int, ...]
    ) -> ir.Value | None:
        """Any format: the reshape adds or drops leading axes of size 1 (a layer of a stack)."""
        before, shared = marker.encoding.shape, leading(marker)
        ones = next((i for i, n in enumerate(before) if n != 1), len(before))
        drop = min(ones, shared)
        add = len(after) - (len(before) - drop)
        if add < 0 or after != (1,) * add + before[drop:]:
            return None
        parts = {
            k: OPS.reshape(v, (1,) * add + shape_of(v)[drop:]) for k, v in marker.parts.items()
        }
        return rebuilt(program, marker, after, block, parts)


def new_block(
    before: Sequence[int], after: Sequence[int], block: Sequence[int]
) -> tuple[int, ...] | None:
    """Blocks after a reshape; None where one would be cut.

    An axis that stays keeps its block; axes that merge or split must share wholly or not at all.
    Axes of size 1 get 1.
    """
    new = [1] * len(after)
    for group in groups(before, after):
        left = [a for a in group[0] if before[a] > 1]
        right = [a for a in group[1] if after[a] > 1]
        if len(left) == len(right) == 1:
            new[right[0]] = block[left[0]]
            continue
        kinds = {block[a] if block[a] < before[a] else 0 for a in left}
        if len(kinds) > 1 or max(kinds, default=0) > 1:
            return None
        for a in right:
            new[a] = max(kinds)
    assert math.prod(before) == math.prod(after)
    return tuple(new)


def _sizes(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    return [shape[a] for a in axes if shape[a] > 1]
