"""Elements that share their parameters: in blocks, or in rows that are put in such an order."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jq.base.deep import Steps, deep
from jq.formats import NUMPY, Encoding, get_format
from jq.formats.blocks import expand
from jq.formats.imported import WithMinimum
from jq.ir import OPS, Op, at, ir, kind_of, number_kind, users
from jq.ir.build import NAME, integers, picked, string_attr
from jq.ir.ops import Contraction, rule_of


# Blocks of elements that share their parameters, and one number for each.
def in_blocks(
    shape: tuple[int, ...], arrays: Sequence[np.ndarray]
) -> tuple[tuple[int, ...], list[np.ndarray]]:
    """The blocks in which numbers for each element are the same, and one number for each block."""
    block = tuple(_run(shape, a, arrays) for a in range(len(shape)))
    steps = tuple(slice(None, None, b) if b else slice(0, 1) for b in block)
    return block, [np.ascontiguousarray(np.broadcast_to(x, shape)[steps]) for x in arrays]


def scale_type(arrays: Sequence[np.ndarray], kinds: set[str]) -> str:
    """The narrow type that numbers came in, where all of them have it."""
    for kind in sorted(kinds & {"bfloat16", "float16"}):
        if all(np.array_equal(a.astype(np.dtype(kind)).astype(a.dtype), a) for a in arrays):
            return kind
    return "float32"


def _run(shape: tuple[int, ...], axis: int, arrays: Sequence[np.ndarray]) -> int:
    """Number of indices of an axis that share their parameters; 0 for all."""
    starts = {0}
    for x in (np.broadcast_to(a, shape) for a in arrays):
        x = np.moveaxis(x, axis, 0)
        differ = x[1:] != x[:-1]
        starts |= set((np.flatnonzero(differ.any(tuple(range(1, differ.ndim)))) + 1).tolist())
    return 0 if starts == {0} else math.gcd(*starts, shape[axis])


BITS = (2, 4, 8)


def with_minimum(
    codes: np.ndarray, scale: np.ndarray, minimum: np.ndarray, kinds: set[str]
) -> tuple[Encoding, dict[str, np.ndarray]] | None:
    """`scale * codes + minimum` in the fewest bits; None where codes take more than 8, or are none.

    Negative codes are counted from the lowest of their type, whose number is then the minimum."""
    if number_kind(codes.dtype) != "i" or not codes.size:
        return None
    low, high = int(codes.min()), int(codes.max())
    for bits in BITS:
        first = 0 if low >= 0 else -(1 << (bits - 1))
        if first <= low and high < first + (1 << bits):
            break
    else:
        return None
    if first:
        minimum = (minimum + np.float64(first) * scale).astype(np.float32)
    block, (scale, minimum) = in_blocks(codes.shape, (scale, minimum))
    fmt = get_format(f"uint{bits}_min")
    assert isinstance(fmt, WithMinimum)
    enc = Encoding(fmt.name, codes.shape, block, scale_type=scale_type((scale, minimum), kinds))
    return enc, fmt.with_minimum(codes.astype(np.int64) - first, scale, minimum, enc)


def rounded_sizes(made: tuple[Encoding, dict[str, np.ndarray]]) -> np.ndarray:
    """The magnitudes that are rounded for each element: its product and its minimum together.

    Twice them, for the model and the format round a sum each: in float32 the latter rounds the
    minimum in steps, a sum and a product."""
    enc, parts = made
    fmt = get_format(enc.format)
    assert isinstance(fmt, WithMinimum)
    codes = np.asarray(fmt.codes(NUMPY, parts, enc), np.float64) - fmt.first
    scale, low = (
        np.abs(expand(NUMPY, parts[k].astype(np.float64), enc)) for k in ("scale", "minimum")
    )
    return np.asarray(2 * (codes * scale + low))


# Rows of a weight whose groups are not in order: GPTQ's `desc_act`.
#
#     dot_general %x, (scale[group[row]] * codes)
#     ->
#     dot_general (gather %x, %order), (scale * codes[order])
#
# Rows that share their parameters come next to each other, and what is summed with them in the same
# order: the products are those of before, added up in another order.
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
            moved = picked(op.operands[index], OPS.constant(order.rows.reshape(-1, 1)), axis)
            if name := string_attr(op, NAME):
                moved.owner.attributes[NAME] = ir.StringAttr.get(f"{name}#rows")
            op.operands[index] = moved
