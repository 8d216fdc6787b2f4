"""Copies for an update what it writes into, where a loop or a branch reads that earlier.

    %l = while (%x) ...;  dynamic_update_slice %x, %u, %i
    ->
    %l = while (%x) ...;  dynamic_update_slice (select %true, %x, 0), %u, %i

IREE writes into %x itself: both results are wrong. IREE also makes one of two computations that
are the same, so that what is computed counts as read where a tensor of its kind and size is. What
is known to be true is behind a barrier, for the copy to be made.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jq.ir import Op, Program, at, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.build import barrier, constant
from jq.ir.values import maker
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import Mend

OPS = StableHloOps()
REGIONS = ("stablehlo.while", "stablehlo.case", "stablehlo.if")
UPDATES = ("stablehlo.dynamic_update_slice", "stablehlo.scatter")
VIEWS = (  # of which the result may lie where the operand does
    "stablehlo.reshape",
    "stablehlo.slice",
    "stablehlo.bitcast_convert",
    "stablehlo.optimization_barrier",
)


@dataclass(frozen=True)
class ShieldReads(Mend):
    """A tensor that a loop or a branch reads, and that a scatter or an update of a slice writes
    into later, is written before it is read.
    Trap: traps/test_programs.py::test_an_update_of_what_a_loop_reads
    """

    name = "shield-reads"

    def left(self, program: Program) -> list[Op]:
        return [op for block in _blocks(program) for op in _written_early(block)]

    def run(self, program: Program, cx: PassContext) -> bool:
        found = self.left(program)
        for op in found:
            with at(op):
                op.operation.operands[0] = _copy(op.operation.operands[0])
        return bool(found)


def _blocks(program: Program) -> Iterator[ir.Block]:
    yield program.body
    for op in program.walk():
        if op.operation.name in REGIONS:
            for region in op.operation.regions:
                yield from region.blocks


def _written_early(block: ir.Block) -> Iterator[Op]:
    read = set[ir.Value]()
    for op in block.operations:
        if op.operation.name in REGIONS:
            read |= {_source(v) for v in _reads(op)}
        elif op.operation.name in UPDATES and _may_be_read(_source(op.operands[0]), read):
            yield op


def _may_be_read(source: ir.Value, read: set[ir.Value]) -> bool:
    if source in read:
        return True
    op = maker(source)
    if op is None or op.operation.name in REGIONS or _is_copy(op):
        return False
    kind, size = dtype_of(source), math.prod(shape_of(source))
    same = (v for v in read if maker(v) and isinstance(v.type, ir.RankedTensorType))
    return any(dtype_of(v) == kind and math.prod(shape_of(v)) == size for v in same)


def _reads(op: Op) -> Iterator[ir.Value]:
    """The operands of an op and of all that its regions hold."""
    yield from op.operation.operands
    for region in op.operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _reads(inner)


def _source(value: ir.Value) -> ir.Value:
    while (view := maker(value, *VIEWS)) is not None:
        value = view.operation.operands[0]
    return value


def _is_copy(op: Op) -> bool:
    return op.operation.name == "stablehlo.select" and (
        maker(op.operation.operands[0], "stablehlo.optimization_barrier") is not None
    )


def _copy(value: ir.Value) -> ir.Value:
    always = barrier(constant(np.array(True)))
    other = OPS.broadcast(constant(np.zeros((), dtype_of(value))), shape_of(value), [])
    return ir.Operation.create(
        "stablehlo.select", results=[value.type], operands=[always, value, other]
    ).result
