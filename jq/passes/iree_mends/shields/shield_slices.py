"""Elements that do not lie side by side are copied before a gather or a reversal reads them.

    gather (reshape (slice %x [0:9, 0:10, 0:1])), %i   // %x : [9, 10, 2]
    ->
    gather (optimization_barrier (reshape (slice ...))), %i

The indices of a gather count as well: a table is looked up by codes. IREE reads through the slice,
also through arithmetic that it folds away (`real (complex %a, %b)`). Which ops it folds is not
known here, so this pass looks through every op whose result has as many elements as its operand.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from jq.ir import Op, ir, shape_of
from jq.ir.build import integers
from jq.ir.values import maker
from jq.passes.iree_mends.mend import Read, Shield

READ = {"stablehlo.gather": 2, "stablehlo.reverse": 1}  # operands, the first of all
_SLICES, _PAD = ("stablehlo.slice", "stablehlo.dynamic_slice"), "stablehlo.pad"


@dataclass(frozen=True)
class ShieldSlices(Shield):
    """A gather from, or a reversal of, elements that are cut out and not contiguous (one channel of
    every pixel, every third column, also by a negative pad or a dynamic slice) fails, and so does a
    lookup in a table whose indices are such elements.
    Trap: traps/test_values.py::test_gather_from_a_channel
    Trap: traps/test_values.py::test_reversal_of_a_channel
    Trap: traps/test_cuts.py::test_what_lies_apart
    Report: iree-org/iree#23637
    """

    name = "shield-slices"

    def finds(self, op: Op) -> list[Read]:
        """The operands of a gather or a reversal that are cut out, so that they lie apart."""
        operands = op.operation.operands
        read = range(READ.get(op.operation.name, 0))
        return [(op, i) for i in read if any(map(_takes_apart, _behind(operands[i])))]


def _takes_apart(op: Op) -> bool:
    """True if neighbours along the last axis of more than one element were none before."""
    if (whole := _cut(op)) is None:
        return False
    left = shape_of(op.operation.results[0])
    last = max((axis for axis, n in enumerate(left) if n > 1), default=None)
    if last is None:
        return False
    step = (integers(op, "strides") or (1,) * len(left))[last]
    return step * prod(whole[last + 1 :]) != 1


def _cut(op: Op) -> tuple[int, ...] | None:
    """The shape of what `op` cuts its result out of: a pad cuts where it pads by less than 0."""
    if op.operation.name in _SLICES:
        return shape_of(op.operation.operands[0])
    if op.operation.name != _PAD:
        return None
    low, high = (np.array(integers(op, f"edge_padding_{end}")) for end in ("low", "high"))
    cut = np.minimum(low, 0) + np.minimum(high, 0)
    return tuple(shape_of(op.operation.results[0]) - cut) if cut.any() else None


def _behind(value: ir.Value) -> Iterator[Op]:
    """The ops that `value` is made by, as far back as the number of elements stays the same or is
    what was cut out."""
    ahead, seen = [value], {value}
    while ahead:
        value = ahead.pop()
        op = maker(value)
        if op is None or op.operation.name == "stablehlo.optimization_barrier":
            continue
        yield op
        count, cut = prod(shape_of(value)), _cut(op) is not None
        for i, operand in enumerate(op.operation.operands):
            same = prod(shape_of(operand)) == count or (cut and i == 0)
            if operand not in seen and same:
                seen.add(operand)
                ahead.append(operand)
