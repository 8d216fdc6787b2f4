"""Loops: their iterations written out, and conditions that need no floats."""

from collections.abc import Sequence

import numpy as np

from jq.base.deep import Steps, deep
from jq.ir import OPS, Op, Program, at, dtype_of, evaluate, ir, shape_of, stablehlo, walk
from jq.ir.build import constant_of, inlined
from jq.ir.build import replace as replace_op
from jq.ir.contract import match_contract
from jq.ir.hoist import carried, end_with
from jq.ir.markers import DEQUANTIZE
from jq.ir.ops.lookup import is_product
from jq.ir.slicing import compute
from jq.ir.stack import counter, joined, trip_count
from jq.ir.values import last_of, maker
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import isa_of

UPDATE = "stablehlo.dynamic_update_slice"
MOVES = {f"stablehlo.{kind}" for kind in ("reshape", "transpose", "convert", "broadcast_in_dim")}


class UnrollLoops(Pass):
    """A loop that runs a known number of times becomes its iterations, one after the other.

        while (%i < 3) { %w = dynamic_slice %stack, %i; %x = dot_general %x, %w; ... }
        ->
        %w0 = slice %stack [0:1]; %x1 = dot_general %x, %w0; %w1 = slice %stack [1:2]; ...

    With `placement=early` each layer of a `scan` has ranges, tables and multipliers of its own, all
    of them constants of the program; the copy of an op for iteration k is called NAME[k]. At the
    `target` level (`stacks`) each layer has weights that are constants, which kernels pack; copies
    keep their names, for they compute one op of the plan. A branch that is known then (every second
    layer is another one) takes the place of the choice.

    Options:
        limit: a loop that runs more often stays a loop.
        stacks: loops whose products read slices of weights, and no others; where the settings
            quantize nothing, those whose products are of codes that the model brings."""

    limit: int = 64
    stacks: bool = False

    def run(self, program: Program, cx: PassContext) -> bool:
        if self.stacks and isa_of(cx.target) is None:
            return False
        loops = [op for op in program.walk() if op.operation.name == "stablehlo.while"]
        changed, quantizes = False, bool(cx.settings.op_types)
        for loop in reversed(loops):  # innermost first
            trips = trip_count(program, loop)
            if trips is None or trips > self.limit:
                continue
            ops = list(walk(loop.regions[1].blocks[0]))
            products = [op for op in ops if match_contract(op) or (quantizes and is_product(op))]
            parts = (_is_slice(program, v) for op in products for v in op.operands)
            if not self.stacks or any(parts):
                unroll(loop, trips, numbered=not self.stacks)
                changed = True
        if changed:
            for op in program.walk():
                _fix_indices(program, op)
        while _choose(program):
            changed = True
        if changed and not self.stacks:
            _join_updates(program)
        return program.tidied(changed)


@deep
def _is_slice(program: Program, value: ir.Value) -> Steps[bool]:
    """True if a value is moved or decoded from a slice of a weight."""
    if (op := maker(value, "stablehlo.dynamic_slice")) is not None:
        return evaluate(program, op.operands[0]) is not None
    if (op := maker(value, *MOVES, DEQUANTIZE)) is None:
        return False
    for operand in op.operands:
        if (yield program, operand):
            return True
    return False


def unroll(loop: Op, trips: int, numbered: bool) -> None:
    values = list(loop.operands)
    for k in range(trips):
        with at(loop):
            suffix = f"[{k}]" if numbered else ""
            values = inlined(loop.regions[1].blocks[0], values, suffix)
    for result, value in zip(loop.results, values, strict=True):
        result.replace_all_uses_with(value)
    loop.operation.erase()


def _choose(program: Program) -> bool:
    """Puts the branch that is taken in the place of each choice that is known."""
    changed = False
    for op in program.walk():
        if op.operation.name not in ("stablehlo.case", "stablehlo.if"):
            continue
        known = compute(program, op.operands[0])
        if known is None:
            continue
        index, last = int(known.reshape(())), len(op.regions) - 1
        if op.operation.name == "stablehlo.if":
            index = 1 - index
        elif not 0 <= index <= last:
            index = last
        with at(op):
            values = inlined(op.regions[index].blocks[0], [], "")
        replace_op(op, values)
        changed = True
        break  # what was walked is gone
    return changed


def _fix_indices(program: Program, op: Op) -> None:
    """A dynamic_slice at a place that is known becomes a slice."""
    if op.operation.name != "stablehlo.dynamic_slice":
        return
    source, *starts = op.operands
    sizes = shape_of(op.results[0])
    if (begin := _places(program, starts, shape_of(source), sizes)) is None:
        return
    with at(op):
        value = OPS.slice(source, begin, [b + s for b, s in zip(begin, sizes, strict=True)])
    replace_op(op, [value])


def _places(
    program: Program, starts: Sequence[ir.Value], whole: Sequence[int], sizes: Sequence[int]
) -> list[int] | None:
    """The place of a part, inside the whole; None where it is not known."""
    found = [compute(program, v) for v in starts]
    known = [int(a) for a in found if a is not None]
    ends = [n - s for n, s in zip(whole, sizes, strict=True)]
    return np.clip(known, 0, ends).tolist() if len(known) == len(found) else None


def _join_updates(program: Program) -> None:
    """Joins the rows that a scan stacks, which more devices can do.

    dynamic_update_slice (dynamic_update_slice %x, %a, 0), %b, 1   ->   concatenate %a, %b"""
    rows: dict[ir.Value, dict[tuple[int, int], ir.Value]] = {}  # by axis and place
    for op in list(program.walk()):
        if op.operation.name != UPDATE:
            continue
        base, new, *starts = op.operands
        whole, sizes = shape_of(base), shape_of(new)
        begin = _places(program, starts, whole, sizes)
        axis, *others = [a for a, n in enumerate(whole) if sizes[a] != n] or [0]
        if begin is None or others or sizes[axis] != 1:
            continue
        before = rows.get(base, {})  # rows of another axis would hold parts of these
        kept = before if all(a == axis for a, _ in before) else {}
        rows[op.results[0]] = found = kept | {(axis, begin[axis]): new}
        if len(found) == whole[axis]:
            del rows[op.results[0]]  # it goes, and another value may take its place in memory
            with at(op):
                replace_op(op, [OPS.concatenate([found[k] for k in sorted(found)], axis)])


class PartialUnroll(Pass):
    """A loop does several iterations before it asks whether to go on.

        while (%i < 64) { BODY(%i) } -> while (%i < 64) { BODY(%i); ...; BODY(%i + 7) }

    IREE starts each iteration by itself, and copies in it all rows that a scan has stacked so far:
    rows of several iterations are put there at once. They are a power of two that divides all.

    Options: `times`, iterations at most; `limit`, of the ops that an iteration has then."""

    times: int = 8
    limit: int = 512

    def run(self, program: Program, cx: PassContext) -> bool:
        changed = False
        for loop in [op for op in program.walk() if op.operation.name == "stablehlo.while"]:
            ops = list(walk(loop.regions[1].blocks[0]))
            found = counter(program, loop)
            if found is None or any(op.operation.name == "stablehlo.while" for op in ops):
                continue
            trips, most = len(found[1]), min(self.times, self.limit // len(ops))
            doublings = min(most.bit_length(), (trips & -trips).bit_length()) - 1
            if doublings > 0:
                _repeat(loop, *found, doublings)
                changed = True
        return program.tidied(changed)


def _repeat(loop: Op, index: int, numbers: range, doublings: int) -> None:
    """An iteration does the work of 2 ** doublings; `index`, `numbers` as of `counter`."""
    body, times = loop.regions[1].blocks[0], 2**doublings
    for _ in range(doublings):
        with at(last_of(body)):
            end_with(body, inlined(body, last_of(body).operands))
    with at(last_of(body)):
        values = [joined(body, place, index, numbers, times) for place in range(len(loop.operands))]
        count = body.arguments[index]
        step = np.array(numbers.step * times).astype(dtype_of(count))  # may wrap, as the sum does
        values[index] = stablehlo.add(count, constant_of(step))
        end_with(body, values)


class RotateLoops(Pass):
    """A loop's condition on floats is computed in front of the loop, and at the end of its body.

        while(%x = %a) cond { %p = (abs %x < 1); return %p } do { ...; return %y }
        ->
        %q = (abs %a < 1)
        while(%x = %a, %p = %q) cond { return %p } do { ...; %r = (abs %y < 1); return %y, %r }

    What a condition computes can then be observed and quantized like everything else. Only for
    `placement=early`; a condition on integers stays where it is."""

    def run(self, program: Program, cx: PassContext) -> bool:
        loops = [op for op in program.walk() if op.operation.name == "stablehlo.while"]
        tests = ((loop, loop.regions[0].blocks[0].operations) for loop in reversed(loops))
        read = ((loop, [v for op in ops for v in op.operands]) for loop, ops in tests)
        rotated = [loop for loop, values in read if any(dtype_of(v).kind in "fV" for v in values)]
        for loop in rotated:
            _rotate(loop)
        return program.tidied(bool(rotated))


def _rotate(loop: Op) -> None:
    condition, body = (region.blocks[0] for region in loop.regions)
    with at(loop):
        (first,) = inlined(condition, loop.operands, "[first]")

    def again(before: ir.Value) -> ir.Value:
        return inlined(condition, [*last_of(body).operands, before])[0]

    test = carried(loop, first, again).regions[0].blocks[0]
    end_with(test, [test.arguments[-1]])
    for op in reversed(list(test.operations)[:-1]):
        op.operation.erase()
