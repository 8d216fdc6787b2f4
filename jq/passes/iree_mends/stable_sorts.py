"""Sorts keep the order of equal elements, as JAX asks, and write over no value that others read.

    sort(%x) {lt(a, b)}  ->  sort(%x, iota) {lt(a, b) or (not lt(b, a) and i < j)}

The further operand is the place of each element, which no two have in common; one that is there
already (`argsort`, `top_k`) serves. A sort of integers alone needs none: equal ones are the same.

What two operands, or two sorts, have in common is computed once, and sorted in place. Each operand
is therefore a copy that is equal to no other: its bits, turned by a number of its own (`xor`),
which the comparison and whoever reads the result turn back."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from jq.ir import OPS, Op, Program, at, constant_of, dtype_of, ir, shape_of, stablehlo, tensor_type
from jq.ir.build import attributes_of, barrier, i64_attr, inlined, integer, recast, replace
from jq.ir.values import maker
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import BARRIER, Mend


class StableSorts(Mend):
    """Sorts exchange equal elements, and write into tensors that other operations read.
    Trap: traps/test_sorts.py::test_order_of_equal_elements"""

    def finds(self, op: Op) -> bool:
        given = op.operands
        return op.operation.name == "stablehlo.sort" and not all(maker(v, BARRIER) for v in given)

    def run(self, program: Program, cx: PassContext) -> bool:
        found = [op for op in program.walk_all() if self.finds(op)]
        numbers = itertools.count(1)
        for op in found:
            with at(op):
                replace(op, _stable(op, numbers))
        return bool(found)


def _stable(op: Op, numbers: Iterator[int]) -> list[ir.Value]:
    given, compare = list(op.operands), op.regions[0].blocks[0]
    axis = integer(op, "dimension")
    own = next((i for i, v in enumerate(given) if _is_place(v, axis)), None)
    place: int | None = len(given) if own is None else own
    if len(given) == 1 and dtype_of(given[0]).kind in "iub":
        place = None
    every = list(given)
    if place == len(given):
        every.append(stablehlo.iota(tensor_type(shape_of(given[0]), np.int32), i64_attr(axis)))
    turned = [Turned(v, next(numbers) % 127 + 1) for v in every]
    operands = [barrier(t.apply(v)) for t, v in zip(turned, every, strict=True)]
    kinds = [v.type for v in operands]
    new = ir.Operation.create("stablehlo.sort", kinds, operands, attributes_of(op), regions=1)
    block = new.regions[0].blocks.append(
        *(tensor_type((), dtype_of(v)) for v in operands for _ in (0, 1))
    )
    with ir.InsertionPoint(block):
        pairs = [turned[i // 2].back(a) for i, a in enumerate(block.arguments)]
        stablehlo.return_([_ordered(compare, pairs, len(given), place)])
    kept = zip(turned, new.results, given, strict=False)
    return [t.back(result) for t, result, _ in kept]


def _ordered(
    compare: ir.Block, pairs: Sequence[ir.Value], count: int, place: int | None
) -> ir.Value:
    """True if the first elements come in front of the second ones, given in turns."""
    mine = pairs[: 2 * count]
    before = inlined(compare, mine)[0]
    if place is None:
        return before
    behind = inlined(compare, [mine[i ^ 1] for i in range(len(mine))])[0]
    no = OPS.constant(np.asarray(False))
    earlier = OPS.compare(pairs[2 * place], pairs[2 * place + 1], "LT")
    return OPS.bit_or(before, OPS.bit_and(OPS.equal(behind, no), earlier))


class Turned:
    """Values like `like` as integers, their bits turned by `number`."""

    def __init__(self, like: ir.Value, number: int) -> None:
        self.dtype, self.number = dtype_of(like), number
        bits = f"i{self.dtype.itemsize}"  # a bool has a byte, of which 1 bit would not do
        self.held = self.dtype if self.dtype.kind in "iuc" else np.dtype(bits)

    def apply(self, x: ir.Value) -> ir.Value:
        bits = OPS.convert(x, self.held) if self.dtype.kind == "b" else recast(x, self.held)
        return self._turn(bits)

    def back(self, x: ir.Value) -> ir.Value:
        x = self._turn(x)
        return OPS.convert(x, np.bool_) if self.dtype.kind == "b" else recast(x, self.dtype)

    def _turn(self, x: ir.Value) -> ir.Value:
        if self.held.kind == "c":  # has no bits
            return x
        number = constant_of(np.asarray(self.number, self.held))
        return OPS.bit_xor(x, OPS.broadcast(number, shape_of(x), []))


def _is_place(value: ir.Value, axis: int) -> bool:
    iota = maker(value, "stablehlo.iota")
    if iota is None:
        return False
    length = shape_of(value)[axis]
    fits = dtype_of(value).kind == "i" and length <= np.iinfo(dtype_of(value)).max
    return fits and integer(iota, "iota_dimension") == axis
