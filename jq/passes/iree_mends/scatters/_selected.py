"""The element of each window that a `select_and_scatter` selects: all of a window are compared, one
after the other, each a strided slice."""

from itertools import product
from math import prod

import numpy as np

from jq.ir import Op, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.build import attributes_of, constant_of, i64_array, integers, strided_slice

OPS = StableHloOps()


def places_of_selected(op: Op, operand: ir.Value, window: tuple[int, ...]) -> ir.Value:
    """The number of the element that each window selects; one beyond the last of padding alone."""
    low, high = _padding(op, shape_of(operand))
    shape, result = shape_of(operand), shape_of(op.operation.operands[1])
    strides = integers(op, "window_strides") or (1,) * len(shape)
    zero = constant_of(np.zeros((), dtype_of(operand)))
    padded = OPS.pad(operand, zero, low, high)
    number = OPS.constant(np.arange(prod(shape), dtype=np.int32).reshape(shape))
    outside = OPS.constant(np.array(prod(shape), np.int32))
    numbers = OPS.pad(number, outside, low, high)
    nowhere = OPS.broadcast(outside, result, [])
    best = place = None
    for first in product(*map(range, window)):
        last = [f + (n - 1) * s + 1 for f, n, s in zip(first, result, strides, strict=True)]
        value = strided_slice(padded, first, last, strides)
        here = strided_slice(numbers, first, last, strides)
        if best is None or place is None:
            best, place = value, here
            continue
        keeps = _mapped(op, best, value)
        empty = OPS.equal(place, nowhere)  # nothing but padding so far
        keeps = OPS.bit_and(keeps, OPS.equal(empty, OPS.constant(np.zeros(result, np.bool_))))
        keeps = OPS.bit_or(keeps, OPS.equal(here, nowhere))
        best, place = OPS.select(keeps, best, value), OPS.select(keeps, place, here)
    assert place is not None
    return place


def _mapped(op: Op, left: ir.Value, right: ir.Value) -> ir.Value:
    """True where the left one stays selected."""
    shape = shape_of(left)
    made = ir.Operation.create(
        "stablehlo.map",
        results=[ir.RankedTensorType.get(list(shape), ir.IntegerType.get_signless(1))],
        operands=[left, right],
        attributes={"dimensions": i64_array(range(len(shape)))},
        regions=1,
    )
    take_region(op, 0, made)
    return made.result


def _padding(op: Op, shape: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Padding before and after, by axis."""
    padding = attributes_of(op).get("padding")
    rank = len(shape)
    pairs = np.zeros((rank, 2), int) if padding is None else np.array(padding).reshape(rank, 2)
    return [int(a) for a, _ in pairs], [int(b) for _, b in pairs]


def take_region(op: Op, region: int, to: ir.Operation) -> None:
    """Gives a copy of one of the op's regions to another op."""
    copy = op.operation.clone()
    copy.regions[region].blocks[0].append_to(to.regions[0])
    copy.erase()
