"""Computes first what is written into a larger tensor, where that is written into a larger one.

    pad (pad (add %x, %y), %one), %zero
    ->
    pad (optimization_barrier (pad (add %x, %y), %one)), %zero

A convolution, a pool and an update of a slice write their operands likewise, and ops that move
elements between them do not matter. Pools count where others of the program begin with the same
tensor of initial values.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from jq.ir import Op, Program
from jq.ir.build import attributes_of
from jq.ir.ops.layout import Layout
from jq.ir.ops.lookup import rule_named
from jq.ir.ops.moves import Movement
from jq.ir.values import maker
from jq.passes.iree_mends.mend import Read, Shield

_PAD, _UPDATE = "stablehlo.pad", "stablehlo.dynamic_update_slice"
_POOL = "stablehlo.reduce_window"


@dataclass(frozen=True)
class ShieldPads(Shield):
    """A tensor that is padded twice with different values, or written into two larger tensors, is
    refused.
    Trap: traps/test_programs.py::test_padding_with_two_values

    Pools of the same shape, one of which is padded or pooled again (YOLO's spatial pyramid), are
    refused.
    Trap: traps/test_programs.py::test_pools_of_pools
    """

    name = "shield-pads"

    def values(self, program: Program) -> Iterable[Read]:
        return ((op, i) for op in program.walk_all() for i in _written_twice(op))


def _written_twice(op: Op) -> Iterator[int]:
    """The operands that `op` writes into a larger tensor, and that are such tensors themselves, or
    pools."""
    for i in _written(op):
        value = op.operation.operands[i]
        while (mover := maker(value)) and _moves(mover):
            value = mover.operation.operands[0]
        if maker(value, _PAD, _UPDATE, _POOL):
            yield i


def _moves(op: Op) -> bool:
    return isinstance(rule_named(op.operation.name), Movement)


def _written(op: Op) -> range:
    """The operands that `op` writes into a larger tensor."""
    name, count = op.operation.name, len(op.operation.operands)
    if name == _UPDATE:
        return range(1, 2)
    if name == _POOL and _pads(op):
        return range(count // 2)
    return range(1 if name == _PAD or (Layout.match(op) is not None and _pads(op)) else 0)


def _pads(op: Op) -> bool:
    padding = attributes_of(op).get("padding")
    return padding is not None and bool(np.array(padding).any())
