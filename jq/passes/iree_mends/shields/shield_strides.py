"""Computes first what a window of one element steps over.

    reduce_window (abs %y), window = [1], stride = [2]
    ->
    reduce_window (optimization_barrier (abs %y)), window = [1], stride = [2]

The pool, or a convolution, and what else is computed from %y are one loop nest for IREE, which runs
over the elements that the window meets.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from jq.ir import Op, Program
from jq.ir.ops.lookup import rule_named
from jq.passes.iree_mends.mend import Read, Shield


@dataclass(frozen=True)
class ShieldStrides(Shield):
    """Elements that a window of one element steps over (a pool or convolution with a stride) are
    zero for other readers, too.
    Trap: traps/test_contractions.py::test_what_a_window_of_one_element_steps_over
    """

    name = "shield-strides"

    def values(self, program: Program) -> Iterable[Read]:
        for op in program.walk_all():
            if _steps_over(op):  # operands in the second half: a filter, or starts
                yield from ((op, i) for i in range(len(op.operation.operands) // 2))


def _steps_over(op: Op) -> bool:
    """True if a window is of one element along an axis, and its next place is not beside it."""
    if (rule := rule_named(op.operation.name)) is None:
        return False
    found = rule.geometry(op)
    pairs = zip(found.window, found.stride, strict=True)
    return any(size == 1 and stride > 1 for size, stride in pairs)
