"""A tensor is reshaped as it is stored, if no block is cut."""

import math
from collections.abc import Sequence
from dataclasses import replace

from jq.ir import OPS, Op, Program, ir, shape_of
from jq.ir.markers import Marker
from jq.ir.ops.base import Axes, Movement
from jq.ir.ops.lattice import FLOAT, Encoded, State
from jq.ir.ops.movement import RESULT, Order, Orders, leading, plain, rebuilt, significant

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

    def orders(self, op: Op, index: int, order: Order) -> Orders | None:
        """Runs of axes that merge or split move as one; axes of size 1 stay at their places."""
        shapes = [shape_of(v) for v in (op.operands[0], op.results[0])]
        if 0 in shapes[0]:
            return None
        here, there = shapes if index != RESULT else shapes[::-1]
        axes = [[a for a, n in enumerate(shape) if n > 1] for shape in (here, there)]
        sizes = [[shape[a] for a in kept] for shape, kept in zip((here, there), axes, strict=True)]
        runs = {tuple(axes[0][i] for i in left): right for left, right in groups(*sizes)}
        found, rest = [], significant(here, order)
        while rest:
            run = next((r for r in runs if r and list(r) == rest[: len(r)]), None)
            if run is None:
                return None
            found += [axes[1][i] for i in runs[run]]
            rest = rest[len(run) :]
        moved = dict(zip(axes[1], found, strict=True))
        other = tuple(moved.get(a, a) for a in range(len(there)))
        pair = (order, other) if index != RESULT else (other, order)
        return Orders((pair[0],), (pair[1],))

    def back(self, op: Op, axes: Axes) -> Axes:
        before, after = shape_of(op.operands[0]), shape_of(op.results[0])
        split = {a for a in axes if after[a] > 1}
        found = (left for left, right in groups(before, after) if split.intersection(right))
        return frozenset(a for left in found for a in left if before[a] > 1)

    def encoded(self, program: Program, op: Op, states: Sequence[State]) -> State:
        state, after = states[0], shape_of(op.results[0])
        if not isinstance(state, Encoded):
            return state
        if state.whole:
            return state.of_shape(after)
        block = new_block(state.encoding.shape, after, state.encoding.block)
        if block is None or max(block, default=0) > 1:
            return FLOAT
        return replace(state, encoding=state.encoding.with_shape(after, block))

    def sink(self, program: Program, op: Op, marker: Marker) -> ir.Value | None:
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

    An axis that stays keeps its block. Of axes that merge or split, what shares a scale must be a
    run of neighbours, and be one afterwards. Axes of size 1 get 1."""
    new = [1] * len(after)
    for group in groups(before, after):
        left = [a for a in group[0] if before[a] > 1]
        right = [a for a in group[1] if after[a] > 1]
        if len(left) == len(right) == 1:
            new[right[0]] = block[left[0]]
            continue
        length = run([before[a] for a in left], [block[a] for a in left])
        found = None if length is None else as_run([after[a] for a in right], length)
        if found is None:
            return None
        for a, b in zip(right, found, strict=True):
            new[a] = b
    assert math.prod(before) == math.prod(after)
    return tuple(new)


def run(sizes: Sequence[int], block: Sequence[int]) -> int | None:
    """Number of neighbours, in row-major order, that share a scale; None where others share it."""
    length, rest = 1, list(zip(sizes, block, strict=True))
    while rest and (rest[-1][1] == 0 or rest[-1][1] >= rest[-1][0]):
        length *= rest.pop()[0]
    if rest and rest[-1][1] > 1:
        size, last = rest.pop()
        if size % last:
            return None
        length *= last
    return length if all(b == 1 for _, b in rest) else None


def as_run(sizes: Sequence[int], length: int) -> list[int] | None:
    """The block along each axis of runs of `length`; None where they do not end with an axis."""
    block = [1] * len(sizes)
    for a in reversed(range(len(sizes))):
        if length % sizes[a] == 0:
            block[a], length = 0, length // sizes[a]
        elif sizes[a] % length == 0:
            block[a], length = length, 1
        else:
            return None
        if length == 1:
            break
    return block
