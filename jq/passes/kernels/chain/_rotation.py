"""Rotary positions of rows: both halves of a row turned by angles of their own.

concatenate(low * cos - high * sin, high * cos + low * sin)"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import Op, maker, only_user, shape_of, users
from jq.ir.build import integer, integers

Operand = tuple[Op, int]  # an op, and which of its operands
_VIEWS = ("stablehlo.broadcast_in_dim", "stablehlo.reshape")


@dataclass(frozen=True)
class Rotation:
    """Cosines and sines f32 [lines, half] as they are read, the number of rows that take a line
    before the next ones take the next, and the ops, the one that gives the result last."""

    cos: Operand
    sin: Operand
    lines: int
    rows: int
    ops: tuple[Any, ...]


def find_rotation(readers: Sequence[Op], m: int, k: int) -> Rotation | None:
    """The rotation of the rows f32 [m, k] that these ops read; None where they are not such."""
    halves = {start: op for op in readers if (start := _half(op, k)) is not None}
    if set(halves) != {0, k // 2} or len(readers) != 2:
        return None
    low, high = halves[0], halves[k // 2]
    parts = [_product(half, kind) for kind in ("subtract", "add") for half in (low, high)]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or any(len(users(half.results[0])) != 2 for half in (low, high)):
        return None
    (low_cos, down), (high_sin, other_down), (low_sin, up), (high_cos, other_up) = found
    whole = only_user(down.results[0], "stablehlo.concatenate")
    sums = [down.results[0], up.results[0]]
    if down != other_down or up != other_up or whole is None or list(whole.operands) != sums:
        return None
    differs = list(down.operands) != [low_cos.results[0], high_sin.results[0]]
    if differs or integer(whole, "dimension") != len(shape_of(whole.results[0])) - 1:
        return None
    cos = _lines(_factor((low_cos, low), (high_cos, high)), m, k // 2)
    sin = _lines(_factor((high_sin, high), (low_sin, low)), m, k // 2)
    if cos is None or sin is None or cos[1:] != sin[1:]:
        return None
    ops = low, high, low_cos, high_sin, high_cos, low_sin, down, up, whole
    return Rotation(cos[0], sin[0], *cos[1:], tuple(op.operation for op in ops))


def _product(half: Op, kind: str) -> tuple[Op, Op] | None:
    """The product of a half that such an op alone reads, and that op."""
    for product in users(half.results[0]):
        total = only_user(product.results[0], f"stablehlo.{kind}")
        if product.operation.name == "stablehlo.multiply" and total is not None:
            return product, total
    return None


def _factor(*pairs: tuple[Op, Op]) -> Operand | None:
    """The operand that multiplies all halves, or None where it is not the same."""
    factors = []
    for product, half in pairs:
        own = half.results[0]
        factors += [(product, i) for i, value in enumerate(product.operands) if value != own]
    values = [op.operands[i] for op, i in factors]
    same = len(values) == len(pairs) and all(value == values[0] for value in values)
    return factors[0] if same else None


def _half(op: Op, k: int) -> int | None:
    """Start of the half of every row that an op cuts off."""
    if op.operation.name != "stablehlo.slice" or k % 2:
        return None
    shape = shape_of(op.operands[0])
    start, limit = integers(op, "start_indices")[-1], integers(op, "limit_indices")[-1]
    whole = shape_of(op.results[0]) == (*shape[:-1], k // 2) and shape[-1] == k
    return start if whole and start in (0, k // 2) and limit == start + k // 2 else None


def _lines(operand: Operand | None, m: int, half: int) -> tuple[Operand, int, int] | None:
    """The operand that a factor [..., half] of m rows repeats, its lines, and the rows of each."""
    if operand is None:
        return None
    views: list[Op] = []
    while (op := maker(operand[0].operands[operand[1]], *_VIEWS)) is not None:
        views.append(op)
        operand = op, 0
    shape = shape_of(operand[0].operands[operand[1]])
    numbers = np.arange(np.prod(shape, dtype=np.int64)).reshape(shape)
    for op in reversed(views):
        wanted = shape_of(op.results[0])
        if op.operation.name == "stablehlo.reshape":
            numbers = numbers.reshape(wanted)
            continue
        places = integers(op, "broadcast_dimensions")
        aligned = [1] * len(wanted)
        for axis, size in zip(places, numbers.shape, strict=True):
            aligned[axis] = size
        numbers = np.broadcast_to(numbers.reshape(aligned), wanted)
    lines, rest = divmod(int(np.prod(shape, dtype=np.int64)), half)
    if rest or not lines or numbers.size != m * half:
        return None
    of_rows = numbers.reshape(m, half)
    rows = int((of_rows[:, 0] == 0).cumprod().sum())
    first = (np.arange(m) // max(rows, 1)) % lines * half
    exact = np.array_equal(of_rows, first[:, None] + np.arange(half))
    return (operand, lines, rows) if exact else None
