"""Shields of tensors that are written into, or shared, while they are read."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from jq.ir import OPS, Op, Program, at, barrier, dtype_of, enclosing, ir, maker, shape_of, stablehlo
from jq.ir.memory import origins
from jq.ir.values import CONTROL, LOOP, operands_of, reached, reads, users
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import BARRIER, Mend, Read, Shield

# Copies for an update what it writes into, where something reads that for which it does not wait.
#
#     %l = while (%x) ...;  dynamic_update_slice %x, %u, %i
#     ->
#     %l = while (%x) ...;  dynamic_update_slice (select %true, %x, 0), %u, %i
#
# IREE writes into %x itself: both results are wrong. IREE also makes one of two computations that
# are the same, so that what is computed counts as read where a tensor of its kind and size is. What
# is known to be true is behind a barrier, for the copy to be made.

UPDATES = ("stablehlo.dynamic_update_slice", "stablehlo.scatter")
WHOLE = ("stablehlo.reshape", "stablehlo.bitcast_convert", "stablehlo.optimization_barrier")
VIEWS = ("stablehlo.slice", *WHOLE)  # of which the result may lie where the operand does


class ShieldReads(Mend):
    """A tensor that a loop or a branch reads, and that a scatter or an update of a slice writes
    into later, is written before it is read.
    Trap: traps/test_programs.py::test_an_update_of_what_a_loop_reads

    What a sum, or any op, reads may be written first by an update or a scatter that comes later.
    Trap: traps/test_programs.py::test_an_update_of_what_a_sum_reads"""

    def left(self, program: Program) -> list[Op]:
        groups = [op for op in program.walk() if op.operation.name in CONTROL]
        inner = [block for op in groups for region in op.regions for block in region.blocks]
        return [op for block in (program.body, *inner) for op in _written_early(block)]

    def run(self, program: Program, cx: PassContext) -> bool:
        found = self.left(program)
        for i, op in enumerate(found):
            with at(op):
                value = op.operands[0]
                # With a number of its own no copy is that of another update.
                hidden = [OPS.constant(np.array(true)) for true in (True, np.int32(i))]
                always = stablehlo.OptimizationBarrierOp(hidden).results[0]
                op.operands[0] = stablehlo.select(always, value, OPS.full(value, 0))
        return bool(found)


def _written_early(block: ir.Block) -> Iterator[Op]:
    read = set[ir.Value]()
    for op in block.operations:
        if op.operation.name in CONTROL:
            read |= {_source(v) for v in reads(op)}
        elif op.operation.name in UPDATES:
            source = _source(op.operands[0])
            if _may_be_read(source, read) or _is_overtaken(source, op):
                yield op


def _may_be_read(source: ir.Value, read: set[ir.Value]) -> bool:
    if source in read:
        return True
    op = maker(source)
    if op is None or op.operation.name in CONTROL:
        return False
    if op.operation.name == "stablehlo.select" and maker(op.operands[0], BARRIER):
        return False  # a copy
    kind, size = dtype_of(source), math.prod(shape_of(source))
    same = (v for v in read if maker(v) and isinstance(v.type, ir.RankedTensorType))
    return any(dtype_of(v) == kind and math.prod(shape_of(v)) == size for v in same)


def _is_overtaken(source: ir.Value, update: Op) -> bool:
    """True if what reads a tensor that is computed here leads elsewhere than to `update` alone."""
    if len([*enclosing(update)]) > 1 or not maker(source) or maker(source, "stablehlo.constant"):
        return False  # blocks of loops keep their order

    def leads_to(value: ir.Value) -> Iterable[ir.Value]:
        return (r for op in users(value) if op.operation != update.operation for r in op.results)

    led = [v for v in reached([source], leads_to) if not maker(v, *WHOLE)]
    waited = reached(list(update.operands)[1:], operands_of) if len(led) > 1 else {}
    return any(v != source and v not in waited for v in led)


def _source(value: ir.Value) -> ir.Value:
    while (view := maker(value, *VIEWS)) is not None:
        value = view.operands[0]
    return value


# Computes first what is written into a tensor, and is made from that tensor.
#
#     dynamic_update_slice %x, (slice (reverse %x)), 0
#     ->
#     dynamic_update_slice %x, (optimization_barrier (slice (reverse %x))), 0
#
# IREE writes into the tensor that it reads from. Which ops leave a tensor where it is, is for its
# folds to say: a reversal of one element, `maximum(x, x)`, `1 * x` and two negations do. Whatever
# shares an input with the tensor that is written into counts as made from it.


class ShieldUpdates(Shield):
    """A part of a tensor that is written to another place of the same tensor (a sliding window) is
    wrong, or refused when called, also after ops that IREE folds away (a reversal of one element,
    `maximum(x, x)`, `1 * x`).
    Trap: traps/test_programs.py::test_a_part_written_to_another_place
    Trap: traps/test_programs.py::test_a_part_written_to_another_place_behind_a_fold"""

    def values(self, program: Program) -> Iterable[Read]:
        known = origins(program.body)
        for op in program.walk():
            if op.operation.name == UPDATES[0]:
                operand, update = list(op.operands)[:2]
                if known[operand] & known[update]:
                    yield op, 1


# Numbers that kernels read inside a loop and outside of it are hidden from the compiler.
#
#     %c = constant dense<0.5> : tensor<1xf32>
#     call @jq_quantize_rows(%x, %c)            // and in a loop, too
#     ->
#     %b = optimization_barrier (constant dense<0.5> : tensor<1xf32>)
#     call @jq_quantize_rows(%x, %b)
#
# IREE makes a constant of equal elements anew where it is used, and may put one that stands between
# and after loops nowhere.


class ShieldSplats(Mend):
    """A constant that kernels read both in a loop and outside it may be left undefined; a weight
    whose elements are all equal becomes such a constant.
    Trap: traps/test_recurrent.py::test_numbers_of_two_loops"""

    def left(self, program: Program) -> list[list[Any]]:
        found = _read_by_kernels(program).values()
        names = [[{b.owner.operation.name for b in enclosing(u.owner)} for u in f] for f in found]
        return [
            f for f, n in zip(found, names, strict=True) if len({LOOP in each for each in n}) > 1
        ]

    def run(self, program: Program, cx: PassContext) -> bool:
        found = self.left(program)
        for uses in found:
            value = uses[0].owner.operands[uses[0].operand_number]
            with at(program.body.operations[0]):
                if program.weight_name(value) is None:
                    value = value.owner.operation.clone().result
                shared = barrier(value)
            for use in uses:
                use.owner.operands[use.operand_number] = shared
        return program.drop_unused_weights() or bool(found)


def _read_by_kernels(program: Program) -> dict[Any, list[Any]]:
    """Uses of numbers that are all equal by calls; equal constants, and weights, are one."""
    found = defaultdict(list)
    for value, data in _constants(program):
        calls = [u for u in value.uses if u.owner.name == "func.call"]
        if calls and (number := element(data)) is not None:
            found[str(value.type), number].extend(calls)
    return found


def _constants(program: Program) -> Iterator[tuple[Any, Any]]:
    """Weights and constants with their data."""
    for name, array in program.weights.items():
        yield program.weight(name), array
    for op in program.walk():
        if op.operation.name == "stablehlo.constant":
            yield op.results[0], op.attributes["value"]


def element(data: Any) -> Any:
    """The number that all elements are; None where they differ."""
    if isinstance(data, np.ndarray) and data.size:
        first = data.flat[0]
        same = first == data.flat[-1] and (data == first).all()  # the last is read first: cheap
        return first.item() if same else None
    if isinstance(data, ir.DenseElementsAttr) and data.is_splat:
        return data.get_splat_value().value
    return None
