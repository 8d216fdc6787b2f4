"""Mends of loops: of what they start with and carry, and of how often they run."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jq.ir import OPS, Op, Program, at, barrier, dtype_of, ir, is_read, last_of, maker, users, walk
from jq.ir.pointwise import POINTWISE
from jq.ir.stack import trip_count
from jq.ir.values import reached, reads
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import Mend, Shield
from jq.passes.iree_mends.shields.sums import is_elementwise
from jq.passes.prepare.loops import unroll

# Keeps carried what a step of a loop does not read, and what it makes of nothing that it reads.
#
#     while(%a = ..., %b = ...)  cond { return %a }  do { return f(%b), g(%b) }
#     ->
#     while(%a = ..., %b = ...)  cond { return %a }  do { return select(%always, f(%b), %a), g(%b) }
#
# IREE moves the condition after the body, where it reads what the body has made. It then drops the
# carries that no step needs, but not their last values. `%always` is true, behind a barrier.


class ShieldCarries(Mend):
    """A loop with a carry that no step reads, or that depends on no carry, crashes the compiler.
    Trap: traps/test_programs.py::test_a_carry_that_only_the_condition_reads"""

    def finds(self, op: Op) -> list[int]:
        """Needed carries that are made of none, or read behind the loop, but in no step of it."""
        if op.operation.name != "stablehlo.while":
            return []
        condition, body = (region.blocks[0] for region in op.regions)
        made_of = _made_of(body)
        behind = {i for i, value in enumerate(op.results) if is_read(value)}
        asked = {i for i, value in enumerate(condition.arguments) if is_read(value)}
        inside = set(reached([j for i in behind | asked for j in made_of[i]], made_of.__getitem__))
        needed = sorted(behind | asked | inside)
        return [i for i in needed if not made_of[i] or i in behind - inside]

    def rewritten(self, op: Op) -> None:
        always = barrier(OPS.constant(np.array(True)))
        body = op.regions[1].blocks[0]
        back = last_of(body)
        for i in self.finds(op):
            with at(back):
                back.operands[i] = OPS.select(always, back.operands[i], body.arguments[i])


def _made_of(body: ir.Block) -> list[set[int]]:
    """The carries that each value which a step of a loop gives is computed from."""
    sources: dict[ir.Value, set[int]] = {v: {i} for i, v in enumerate(body.arguments)}
    for op in body.operations:
        found = set().union(*(sources[v] for v in reads(op) if v in sources))
        sources.update((result, found) for result in op.results)
    return [sources.get(v, set()) for v in last_of(body).operands]


# Computes in front of the loop what it starts with, and something else reads as well.
#
#     %0 = f(%x);  %1 = while(%a = %0) {...};  g(%1, %0)
#     ->
#     %0 = optimization_barrier (f(%x));  %1 = while(%a = %0) {...};  g(%1, %0)
#
# IREE makes one dispatch of `f` and `g`, which the loop between them then waits for in a circle.
# So it does where `g` does not wait for the loop, but another op does, which becomes part of the
# same dispatch:
#
#     %0 = f(%x);  %1 = while(%a = %0) {...};  g(%0), h(%1)
#
# And where it is not the start that `k` reads, but a value that the start is computed from:
#
#     %0 = f(%x);  %1 = g(%0);  %2 = while(%a = %1) {...};  h(%2), k(%0)
#     ->
#     %0 = f(%x);  %1 = optimization_barrier (g(%0));  ...
#
# Where no op waits for the loop nothing is done: in nested loops the runtime refuses a program with
# such barriers when it is called ("indirect buffer reference slot 0 is out range").

_CONTROL = {"func.return", *(f"stablehlo.{kind}" for kind in ("return", "while", "if", "case"))}
MADE = ("stablehlo.constant", "stablehlo.optimization_barrier")


class ShieldStarts(Shield):
    """An initial value of a loop that is read after the loop, too, waits for the loop while the
    loop waits for it, and is refused; so is one that is computed from a value that something else
    reads after it, and one that something else reads beside the loop, where an op waits for the
    loop.
    Trap: traps/test_programs.py::test_what_a_loop_starts_with_is_read_behind_it
    Trap: traps/test_programs.py::test_what_a_loop_starts_with_is_computed_beside_others
    Trap: traps/test_programs.py::test_what_a_loop_starts_with_is_read_beside_it"""

    def finds(self, op: Op) -> list[ir.Value]:
        """Computed values that a loop starts with, and that are read, or computed, together with
        ops that wait for the loop."""
        if op.operation.name != "stablehlo.while":
            return []
        starts = [v for v in op.operands if _is_computed(v)]
        readers = {v: {u.operation for u in users(v)} for v in starts}
        fused = {v: _beside(v) | {r for r in readers[v] if r.name not in _CONTROL} for v in starts}
        if all(readers[v] == {op.operation} and not fused[v] for v in starts):
            return []  # most loops: nothing around them has to be followed
        waiting, needed = _behind(op), _before(op)
        computed = any(found.name != "func.return" for found in waiting)
        return [v for v in starts if readers[v] & waiting or (computed and fused[v] - needed)]


def _is_computed(value: ir.Value) -> bool:
    op = maker(value)
    return op is not None and op.operation.name not in MADE


def _is_fused(value: ir.Value) -> bool:
    """True if the ops around `value` may be one dispatch with it."""
    op = maker(value)
    return op is not None and (is_elementwise(op) or op.operation.name == "stablehlo.reshape")


def _beside(start: ir.Value) -> set[Any]:
    """The other readers of the values that `start` is computed from, element by element."""
    if not _is_fused(start):
        return set()
    values = reached([start], lambda v: filter(_is_fused, v.owner.operands))
    chain = {v.owner.operation for v in values}
    found = {u.operation for v in values if v != start for u in users(v)}
    return {u for u in found - chain if u.name != "func.return"}


def _before(op: Op) -> set[Any]:
    """An op, those in its regions, and those that they need."""

    def follow(one: ir.Operation) -> list[ir.Operation]:
        inner = [each.operation for r in one.regions for block in r.blocks for each in walk(block)]
        return [*inner, *(made.operation for v in one.operands if (made := maker(v)))]

    return set(reached([op.operation], follow))


def _behind(op: Op) -> set[Any]:
    """The ops that need a result of an op, at once or by others, also inside of their regions."""

    def readers(one: ir.Operation) -> list[ir.Operation]:
        own = [one.parent] if one.parent.name != "func.func" else []
        return [*own, *(u.operation for result in one.results for u in users(result))]

    first = [u.operation for result in op.results for u in users(result)]
    return set(reached(first, readers))


# Short loops of integer arithmetic become their iterations, one after the other.
#
#     while (%i < 5) { %a = xor (shift_left %a, %r), ...; ... }  ->  the ops of five iterations
#
# JAX writes the rounds of its random generator as such loops. IREE waits before and after each
# iteration of a loop, and of a loop of floats that has such loops inside (samplers that draw until
# they accept) some are refused, or fail when they are called. Integers have no rounding that could
# change.
MOVES = {f"stablehlo.{kind}" for kind in ("constant", "slice", "reshape", "broadcast_in_dim")}
KINDS = POINTWISE | MOVES | {"stablehlo.return"}


class UnrollRounds(Mend):
    """A loop of unknown length with loops of a few integer operations inside, as those of
    `jax.random`'s samplers, is refused ("maximum iteration count exceeded"), or refused when called
    ("indirect buffer reference slot 0").
    Trap: traps/test_programs.py::test_rounds_of_a_generator_in_a_loop_of_unknown_length"""

    limit: int = 8  # a loop that runs more often stays a loop
    ops: int = 512  # so does one whose iterations have more ops together

    def left(self, program: Program) -> Sequence[Op]:
        return [op for op in program.walk() if self._trips(program, op)]

    def run(self, program: Program, cx: PassContext) -> bool:
        loops = [op for op in program.walk() if op.operation.name == "stablehlo.while"]
        changed = False
        for loop in reversed(loops):  # innermost first
            if trips := self._trips(program, loop):
                unroll(loop, trips, numbered=False)
                changed = True
        return changed

    def _trips(self, program: Program, op: Op) -> int | None:
        """The number of times that a short loop runs; None for others."""
        if op.operation.name != "stablehlo.while":
            return None
        trips, body = trip_count(program, op), list(walk(op.regions[1].blocks[0]))
        short = trips is not None and trips <= self.limit and trips * len(body) <= self.ops
        if not short or any(each.operation.name not in KINDS for each in body):
            return None
        values = (v for each in body for v in (*each.operands, *each.results))
        return trips if all(dtype_of(v).kind in "iub" for v in values) else None
