"""Values whose channels can be scaled: who makes them, and who reads them.

Whoever reads the channels must be a product that sums over them, each with a weight of its own;
what makes them is anything that `_producers` can multiply, with a layer's weight in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import Program, dtype_of, ir, shape_of
from jq.ir.build import integers
from jq.ops.base import rule_of
from jq.ops.convolution import Convolution, Layout, groups_of
from jq.ops.dot_general import DotGeneral
from jq.passes.recovery._inputs import NotApplicable, find_use
from jq.passes.recovery._producers import edits_for
from jq.planning import contractions, find_weight

Channels = np.ndarray  # the channel of every element of a weight, broadcast; -1: of none


@dataclass(frozen=True)
class Pair:
    """A value whose channels along one axis can be scaled.

    Attributes:
        readers: weights that are multiplied by the factors; makers: that are divided by them.
        summed: of each reader, the axes that its product sums over.
        uses: how many ops read the value.
    """

    value: ir.Value
    axis: int
    uses: int
    readers: dict[str, Channels]
    makers: dict[str, Channels]
    summed: dict[str, tuple[int, ...]]

    @property
    def width(self) -> int:
        return shape_of(self.value)[self.axis]

    def along(self, vector: np.ndarray) -> np.ndarray:
        """A number a channel, of the value's rank."""
        return along(self.value, self.axis, vector)


@dataclass(frozen=True)
class Input:
    """A value that products with weights sum over one axis of, whoever else reads it.

    `readers`: those products, with the number of the operand that is the value; `channels`: of
    their weights.
    """

    value: ir.Value
    axis: int
    readers: list[tuple[Any, int]]
    channels: dict[str, Channels]

    @property
    def width(self) -> int:
        return shape_of(self.value)[self.axis]


def find_inputs(program: Program) -> list[Input]:
    """In program order; each product is in one of them."""
    found: dict[Any, Input] = {}
    for op, _ in contractions(program):
        for index, axis in _summed(program, op):
            value = op.operands[index]
            reader = _reader(program, op, index, axis, np.arange(shape_of(value)[axis]))
            if reader is None or dtype_of(value).kind not in "fV":
                continue
            group = found.setdefault((value, axis), Input(value, axis, [], {}))
            if reader[0] not in group.channels:
                group.readers.append((op, index))
                group.channels[reader[0]] = reader[1][0]
            break
    return list(found.values())


def find_pairs(program: Program) -> list[Pair]:
    """All values that can be scaled, in program order."""
    layers = {w.name for op, rule in contractions(program) for r in rule.roles(op)
              if (w := find_weight(program, op.operands[r.index], r)) is not None}  # fmt: skip
    found = []
    for value, axis in _values(program):
        readers = _readers(program, value, axis)
        if readers is None:
            continue
        probe = along(value, axis, 2.0 + np.arange(shape_of(value)[axis]))
        uses = sum(1 for _ in value.uses)
        edits = edits_for(program, value, probe, uses)
        if edits is None:
            continue
        makers = {
            name: np.rint(factor).astype(int) - 2
            for name, factor in edits.weights.items()
            if name in layers
        }
        if makers and not makers.keys() & readers.keys():
            channels = {name: ids for name, (ids, _) in readers.items()}
            summed = {name: axes for name, (_, axes) in readers.items()}
            found.append(Pair(value, axis, uses, channels, makers, summed))
    return found


def _values(program: Program) -> Iterator[tuple[ir.Value, int]]:
    """Every value that a product sums over one axis of; the axis of channels in front of a
    flattening, which has fewer of them, instead."""
    seen = set()
    for op, _ in contractions(program):
        for index, axis in _summed(program, op):
            value, axis = _unflattened(op.operands[index], axis)
            if (value, axis) not in seen and dtype_of(value).kind in "fV":
                seen.add((value, axis))
                yield value, axis


def _summed(program: Program, op: Any) -> list[tuple[int, int]]:
    """Operand and axis of what a product with a weight of its own sums over."""
    rule = rule_of(op)
    if isinstance(rule, Convolution):
        return [(0, Layout.of(op).input_feature)]
    found = []
    for operand in (0, 1):
        try:
            wanted = find_use(program, op, operand).wanted
        except NotApplicable:
            continue
        if isinstance(rule, DotGeneral) and len(wanted.contracted) == 1:
            found.append((wanted.operand, wanted.contracted[0]))
    return found


def _unflattened(value: ir.Value, axis: int) -> tuple[ir.Value, int]:
    """[n, h, w, c] in front of [n, h * w * c], and c."""
    op = value.owner
    if isinstance(op, ir.Block) or op.operation.name != "stablehlo.reshape":
        return value, axis
    source = op.operation.operands[0]
    before, after = shape_of(source), shape_of(value)
    lead = len([n for n in after[axis + 1 :] if n > 1]) == 0 and len(before) > len(after)
    if lead and before[-1] > 1 and after[:axis] == before[:axis]:
        return source, len(before) - 1
    return value, axis


Reader = tuple[Channels, tuple[int, ...]]


def _readers(program: Program, value: ir.Value, axis: int) -> dict[str, Reader] | None:
    """The weights that are multiplied by the channels, and their axes that are summed over; None
    where anything else reads the value."""
    found: dict[str, Reader] = {}
    ids = along(value, axis, np.arange(shape_of(value)[axis]))
    for use in value.uses:
        op, operand = use.owner, use.operand_number
        if op.operation.name == "stablehlo.reshape":
            result = op.operation.results[0]
            after = shape_of(result)
            kept = [n if a == 0 else 1 for a, n in enumerate(after)]
            flat = np.broadcast_to(ids, (1, *shape_of(value)[1:])).reshape(-1)
            if len(after) != 2 or flat.size != after[1] or kept[0] != shape_of(value)[0]:
                return None
            readers = [_reader(program, u.owner, u.operand_number, 1, flat) for u in result.uses]
        else:
            readers = [_reader(program, op, operand, axis, ids.reshape(-1))]
        for reader in readers:
            if reader is None or reader[0] in found:
                return None
            found[reader[0]] = reader[1]
    return found or None


def _reader(
    program: Program, op: Any, operand: int, axis: int, ids: np.ndarray
) -> tuple[str, Reader] | None:
    """The weight of a product that sums over an axis of its operand."""
    try:
        use = find_use(program, op, 1 - operand)
    except NotApplicable:
        return None
    name, matrix = use.matrix.name, use.matrix
    summed = matrix.order[: matrix.contracted]
    if sum(1 for _ in program.weight(name).uses) != 1:
        return None
    if isinstance(rule_of(op), Convolution):
        if operand != 0 or axis != Layout.of(op).input_feature:
            return None
        return name, (_kernel_channels(op, ids), summed)
    if axis not in use.wanted.contracted:
        return None
    own = matrix.order[use.wanted.contracted.index(axis)]
    return name, (ids.reshape([-1 if a == own else 1 for a in range(len(matrix.shape))]), summed)


def _kernel_channels(op: Any, ids: np.ndarray) -> Channels:
    """Of a filter, transposed or not: group g of the outputs reads group g of the inputs."""
    d, groups, kernel = Layout.of(op), groups_of(op), shape_of(op.operands[1])
    inner, outer = kernel[d.kernel_in], kernel[d.kernel_out]
    group = np.arange(outer) // (outer // groups)
    channel = ids[group[None, :] * inner + np.arange(inner)[:, None]]  # [in, out]
    axes = sorted((d.kernel_in, d.kernel_out))
    if axes[0] != d.kernel_in:
        channel = channel.T
    wide = channel.reshape([kernel[a] if a in axes else 1 for a in range(len(kernel))])
    owner: Any = op.operands[1].owner
    while not isinstance(owner, ir.Block):  # a transpose, as `find_use` passes no other op
        wide = np.transpose(wide, np.argsort(integers(owner, "permutation")))
        owner = owner.operation.operands[0].owner
    return wide


def along(value: ir.Value, axis: int, vector: np.ndarray) -> np.ndarray:
    return vector.reshape([-1 if a == axis else 1 for a in range(len(shape_of(value)))])
