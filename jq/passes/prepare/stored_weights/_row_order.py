"""Rows of a weight whose groups are not in order: GPTQ's `desc_act`.

    dot_general %x, (scale[group[row]] * codes)
    ->
    dot_general (gather %x, %order), (scale * codes[order])

Rows that share their parameters come next to each other, and what is summed with them in the same
order: the products are those of before, added up in another order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jq.base.deep import Steps, deep
from jq.ir import Op, at, ir, shape_of, stablehlo
from jq.ir.build import NAME, constant, i64_array, integers, string_attr
from jq.ir.ops.base import Contraction
from jq.ir.ops.lookup import rule_of
from jq.ir.values import kind_of, users

LEAST = 4  # rows of a group


@dataclass(frozen=True)
class RowOrder:
    """The order in which rows along `axis` have their groups together."""

    axis: int
    rows: np.ndarray

    def applied(self, array: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray | None:
        """An array that is broadcast to `shape`, in this order."""
        if array is None:
            return None
        return np.take(np.broadcast_to(array, shape), self.rows, self.axis)


def row_order(shape: tuple[int, ...], parameters: Sequence[np.ndarray]) -> RowOrder | None:
    """The order for parameters of each element; None where groups are not of one size, of a few
    rows at least, or are together already."""
    for axis, count in enumerate(shape):
        groups: dict[bytes, list[int]] = {}
        wide = [np.moveaxis(np.broadcast_to(p, shape), axis, 0) for p in parameters]
        for row in range(count):
            groups.setdefault(b"".join(w[row].tobytes() for w in wide), []).append(row)
        rows = np.array([row for group in groups.values() for row in group], np.int32)
        sizes = {len(group) for group in groups.values()}
        if len(sizes) == 1 and LEAST <= min(sizes) < count and (np.diff(rows) != 1).any():
            return RowOrder(axis, rows)
    return None


@deep
def products(value: ir.Value, axis: int) -> Steps[list[tuple[Op, int, int]] | None]:
    """The contractions that sum over an axis of a value, with the other operand's number and axis;
    None where something else reads it."""
    readers: list[tuple[Op, int, int]] = []
    for op in users(value):
        if kind_of(op) == "stablehlo.transpose":
            after = yield op.results[0], list(integers(op, "permutation")).index(axis)
        elif kind_of(op) == "stablehlo.convert":
            after = yield op.results[0], axis
        else:
            after = _product(op, value, axis)
        if after is None:
            return None
        readers += after
    return readers


def _product(op: Op, value: ir.Value, axis: int) -> list[tuple[Op, int, int]] | None:
    rule, operands = rule_of(op), list(op.operands)
    if not isinstance(rule, Contraction) or len(operands) != 2 or operands.count(value) != 1:
        return None
    index = operands.index(value)
    other = rule.summed_with(op, index).get(axis)
    return None if other is None else [(op, 1 - index, other)]


def reorder(found: Sequence[tuple[Op, int, int]], order: RowOrder) -> None:
    """Puts what is summed with the rows in their order."""
    for op, index, axis in found:
        with at(op):
            picked = _picked(op.operands[index], order.rows, axis, string_attr(op, NAME))
            op.operands[index] = picked


def _picked(x: ir.Value, rows: np.ndarray, axis: int, name: str | None) -> ir.Value:
    """`x` with the indices `rows` of an axis, for the product `name`."""
    shape = shape_of(x)
    numbers = stablehlo.GatherDimensionNumbers.get(
        offset_dims=[a for a in range(len(shape)) if a != axis],
        collapsed_slice_dims=[axis],
        operand_batching_dims=[],
        start_indices_batching_dims=[],
        start_index_map=[axis],
        index_vector_dim=1,
    )
    made = ir.Operation.create(
        "stablehlo.gather",
        results=[x.type],
        operands=[x, constant(rows.reshape(-1, 1))],
        attributes={
            "dimension_numbers": numbers,
            **({NAME: ir.StringAttr.get(f"{name}#rows")} if name else {}),
            "slice_sizes": i64_array([1 if a == axis else n for a, n in enumerate(shape)]),
        },
    )
    return made.result
