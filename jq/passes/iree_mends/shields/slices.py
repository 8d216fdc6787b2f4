"""Shields of ops that read, or write, a part of a tensor."""

from collections.abc import Iterable, Iterator
from math import prod

import numpy as np

from jq.ir import Op, Program, ir, maker, reached, shape_of
from jq.ir.build import attributes_of, integers
from jq.ir.ops import Layout, Movement, rule_named
from jq.passes.iree_mends.mend import BARRIER, Read, Shield

# Elements that do not lie side by side are copied before a gather or a reversal reads them.
#
#     gather (reshape (slice %x [0:9, 0:10, 0:1])), %i   // %x : [9, 10, 2]
#     ->
#     gather (optimization_barrier (reshape (slice ...))), %i
#
# The indices of a gather count as well: a table is looked up by codes. IREE reads through the
# slice, also through arithmetic that it folds away (`real (complex %a, %b)`). Which ops it folds is
# not known here, so this pass looks through every op whose result has as many elements as its
# operand.
READ = {"stablehlo.gather": 2, "stablehlo.reverse": 1}  # operands, the first of all
_SLICES = ("stablehlo.slice", "stablehlo.dynamic_slice")
_PAD = "stablehlo.pad"


class ShieldSlices(Shield):
    """A gather from, or a reversal of, elements that are cut out and not contiguous (one channel of
    every pixel, every third column, also by a negative pad or a dynamic slice) fails, and so does a
    lookup in a table whose indices are such elements.
    Trap: traps/test_values.py::test_gather_from_a_channel
    Trap: traps/test_values.py::test_reversal_of_a_channel
    Trap: traps/test_cuts.py::test_what_lies_apart
    Report: iree-org/iree#23637"""

    def finds(self, op: Op) -> list[Read]:
        """The operands of a gather or a reversal that are cut out, so that they lie apart."""
        operands = op.operands
        read = range(READ.get(op.operation.name, 0))
        return [(op, i) for i in read if any(map(_takes_apart, _behind(operands[i])))]


def _takes_apart(op: Op) -> bool:
    """True if neighbours along the last axis of more than one element were none before."""
    if (whole := _cut(op)) is None:
        return False
    left = shape_of(op.results[0])
    last = max((axis for axis, n in enumerate(left) if n > 1), default=None)
    if last is None:
        return False
    step = (integers(op, "strides") or (1,) * len(left))[last]
    return step * prod(whole[last + 1 :]) != 1


def _cut(op: Op) -> tuple[int, ...] | None:
    """The shape of what `op` cuts its result out of: a pad cuts where it pads by less than 0."""
    if op.operation.name in _SLICES:
        return shape_of(op.operands[0])
    if op.operation.name != _PAD:
        return None
    low, high = (np.array(integers(op, f"edge_padding_{end}")) for end in ("low", "high"))
    cut = np.minimum(low, 0) + np.minimum(high, 0)
    return tuple(shape_of(op.results[0]) - cut) if cut.any() else None


def _behind(value: ir.Value) -> Iterator[Op]:
    """The ops behind `value`, as far as the number of elements stays or is what was cut out."""

    def follow(v: ir.Value) -> Iterator[ir.Value]:
        if (op := maker(v)) is not None and op.operation.name != BARRIER:
            count, cut = prod(shape_of(v)), _cut(op) is not None
            for i, operand in enumerate(op.operands):
                if prod(shape_of(operand)) == count or (cut and i == 0):
                    yield operand

    made = filter(None, map(maker, reached([value], follow)))
    return (op for op in made if op.operation.name != BARRIER)


# Computes first what a reversal reads, where it comes from every second element.
#
#     reverse (slice %x [0:7, 0:9:2])  ->  reverse (optimization_barrier (slice ...))
#     slice (reverse %x) [0:7, 0:9:2]  ->  slice (optimization_barrier (reverse %x))
#
# They are one loop nest for IREE, whatever lies between that it computes with them.
class ShieldReversals(Shield):
    """Reversing every second element (`x[::-2]`) is refused.
    Trap: traps/test_programs.py::test_reversal_of_every_second_element"""

    def values(self, program: Program) -> Iterable[ir.Value | Read]:
        ops = [(op, _kind(op)) for op in program.walk_all()]
        if {"reverse", "strided"} <= {kind for _, kind in ops}:
            for op in (op for op, kind in ops if kind == "reverse"):
                yield op, 0
                yield op.results[0]


def _kind(op: Op) -> str:
    name = op.operation.name.removeprefix("stablehlo.")
    if name == "slice":
        return "strided" if max(integers(op, "strides"), default=1) > 1 else "slice"
    return str(name)


# Computes first what a window of one element steps over.
#
#     reduce_window (abs %y), window = [1], stride = [2]
#     ->
#     reduce_window (optimization_barrier (abs %y)), window = [1], stride = [2]
#
# The pool, or a convolution, and what else is computed from %y are one loop nest for IREE, which
# runs over the elements that the window meets.
class ShieldStrides(Shield):
    """Elements that a window of one element steps over (a pool or convolution with a stride) are
    zero for other readers, too.
    Trap: traps/test_contractions.py::test_what_a_window_of_one_element_steps_over"""

    def values(self, program: Program) -> Iterable[Read]:
        for op in program.walk_all():
            if _steps_over(op):  # operands in the second half: a filter, or starts
                yield from ((op, i) for i in range(len(op.operands) // 2))


def _steps_over(op: Op) -> bool:
    """True if a window is of one element along an axis, and its next place is not beside it."""
    if (rule := rule_named(op.operation.name)) is None:
        return False
    found = rule.geometry(op)
    pairs = zip(found.window, found.stride, strict=True)
    return any(size == 1 and stride > 1 for size, stride in pairs)


# Computes first what is written into a larger tensor, where that is written into a larger one.
#
#     pad (pad (add %x, %y), %one), %zero
#     ->
#     pad (optimization_barrier (pad (add %x, %y), %one)), %zero
#
# A convolution, a pool and an update of a slice write their operands likewise, and ops that move
# elements between them do not matter. Pools count where others of the program begin with the same
# tensor of initial values.
_UPDATE = "stablehlo.dynamic_update_slice"
_POOL = "stablehlo.reduce_window"


class ShieldPads(Shield):
    """A tensor that is padded twice with different values, or written into two larger tensors, is
    refused.
    Trap: traps/test_programs.py::test_padding_with_two_values

    Pools of the same shape, one of which is padded or pooled again (YOLO's spatial pyramid), are
    refused.
    Trap: traps/test_programs.py::test_pools_of_pools"""

    def values(self, program: Program) -> Iterable[Read]:
        return ((op, i) for op in program.walk_all() for i in _written_twice(op))


def _written_twice(op: Op) -> Iterator[int]:
    """Operands written by `op` into a larger tensor that are such tensors themselves, or pools."""
    for i in _written(op):
        value = op.operands[i]
        while (mover := maker(value)) and isinstance(rule_named(mover.operation.name), Movement):
            value = mover.operands[0]
        if maker(value, _PAD, _UPDATE, _POOL):
            yield i


def _written(op: Op) -> range:
    """The operands that `op` writes into a larger tensor."""
    name, count = op.operation.name, len(op.operands)
    if name == _UPDATE:
        return range(1, 2)
    if name == _POOL and _pads(op):
        return range(count // 2)
    return range(1 if name == _PAD or (Layout.match(op) is not None and _pads(op)) else 0)


def _pads(op: Op) -> bool:
    return bool(np.array(attributes_of(op).get("padding", 0)).any())
