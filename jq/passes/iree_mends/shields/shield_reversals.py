"""Computes first what a reversal reads, where it comes from every second element.

    reverse (slice %x [0:7, 0:9:2])  ->  reverse (optimization_barrier (slice ...))
    slice (reverse %x) [0:7, 0:9:2]  ->  slice (optimization_barrier (reverse %x))

They are one loop nest for IREE, whatever lies between that it computes with them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from jq.ir import Op, Program, ir
from jq.ir.build import integers
from jq.passes.iree_mends.mend import Read, Shield


@dataclass(frozen=True)
class ShieldReversals(Shield):
    """Reversing every second element (`x[::-2]`) is refused.
    Trap: traps/test_programs.py::test_reversal_of_every_second_element
    """

    name = "shield-reversals"

    def values(self, program: Program) -> Iterable[ir.Value | Read]:
        ops = [(op, _kind(op)) for op in program.walk_all()]
        if {"reverse", "strided"} <= {kind for _, kind in ops}:
            for op in (op for op, kind in ops if kind == "reverse"):
                yield op, 0
                yield op.operation.results[0]


def _kind(op: Op) -> str:
    name = op.operation.name.removeprefix("stablehlo.")
    if name == "slice":
        return "strided" if max(integers(op, "strides"), default=1) > 1 else "slice"
    return str(name)
