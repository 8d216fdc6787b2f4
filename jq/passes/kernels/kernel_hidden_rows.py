"""Rows that a mask hides from everything that reads them are not computed.

    %y = call @jq_gemm_1024x384x384(%x, ...)          %n = how many rows of each sequence are read
    %z = multiply %y, broadcast(%mask)           ->   %y = call @jq_gemm_1024x384x384'(%x, ..., %n)
                                                      %z = multiply %y, broadcast(%mask)

So sentences that are padded to a length cost what their own lengths do. `_rows_read` says which
rows are read; kernels leave out those after the last one of each sequence. Nothing is left out
where a row is a result of the program, or read by an op that has no rule."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from jq.ir import OPS, Op, Program, at, ir
from jq.kernels import Sequences
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import call_instead, renamed
from jq.passes.kernels._rows_read import NOTHING, First, Nonzero, Reads, Rows, Shown, slice_of


class KernelHiddenRows(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        program.run_passes("func.func(cse)")  # equal masks are one value
        partial = list(_found(Reads(program)))
        if not partial:
            return False
        widest = _widest(rows for _, _, rows in partial)
        counts: dict[Rows, ir.Value] = {}
        first = partial[0][0]
        _bring_masks(program, first, [rows for _, _, rows in partial])
        with at(first):
            for _, _, rows in partial:
                if (same := _merged(rows, widest)) not in counts:
                    counts[same] = _count(same)
        for op, kernel, rows in partial:
            call_instead(program, kernel, op, [*op.operands, counts[_merged(rows, widest)]])
        program.tell(f"{len(partial)} kernels leave out rows that nothing reads, such as padding")
        return renamed(program, True)


def _found(reads: Reads) -> Iterable[tuple[Any, Any, Rows]]:
    """Ops with rows that nobody reads, in program order, and the kernels that leave them out."""
    for op, kernel in reads.kernels.items():
        rows = reads.of(op)
        if rows is None or rows == NOTHING or not rows.are_of(kernel):
            continue
        some = kernel.by_sequences(Sequences(rows.length, fill=op in reads.filled))
        if some is not None:
            yield op, some, rows


def _bring_masks(program: Program, first: Op, found: Iterable[Rows]) -> None:
    """Moves the ops that masks are computed by in front of `first`."""
    masks = [r.mask for rows in found for r in rows.reasons if not isinstance(r, First)]
    wanted = {op for mask in masks for op in slice_of(mask) or []}
    behind = False
    for op in list(program.body.operations):
        behind = behind or op.operation == first
        if behind and op.operation in wanted:
            op.operation.move_before(first)


def _widest(found: Iterable[Rows]) -> dict[ir.Value, float]:
    """The largest spread of each mask: one count for all layers is better than one for each."""
    widest: dict[ir.Value, float] = {}
    for reason in (reason for rows in found for reason in rows.reasons):
        if isinstance(reason, Shown):
            widest[reason.mask] = max(widest.get(reason.mask, 0.0), reason.spread)
    return widest


def _merged(rows: Rows, widest: dict[ir.Value, float]) -> Rows:
    reasons = dict.fromkeys(
        Shown(r.mask, widest[r.mask]) if isinstance(r, Shown) else r for r in rows.reasons
    )
    return Rows(rows.batch, rows.length, tuple(sorted(reasons, key=lambda r: type(r).__name__)))


def _count(rows: Rows) -> ir.Value:
    """i32 [batch]: how many rows of each sequence there are up to the last one that is read."""
    shape = (rows.batch, rows.length)
    least = max([r.count for r in rows.reasons if isinstance(r, First)], default=0)
    none = OPS.constant(np.full(shape, least, np.int32))
    numbers = OPS.constant(np.arange(1, rows.length + 1, dtype=np.int32))
    numbers = OPS.broadcast(numbers, shape, (1,))
    last = none
    for reason in rows.reasons:
        if not isinstance(reason, First):
            mask = OPS.reshape(reason.mask, shape)
            if isinstance(reason, Nonzero):
                read = OPS.compare(mask, 0, "EQ" if reason.negated else "NE")
            else:
                read = _shown(mask, reason)
            last = OPS.maximum(last, OPS.select(read, numbers, none))
    return OPS.reshape(OPS.reduce_max(last, [1]), (rows.batch,))


def _shown(mask: ir.Value, reason: Shown) -> ir.Value:
    """Everywhere where a number is NaN, or the largest one no number."""
    shape = OPS.shape(mask)
    largest = OPS.broadcast(OPS.reduce_max(mask, [1]), shape, (0, 1))
    spread = OPS.constant(np.full(shape, reason.spread, np.float32))
    hidden = OPS.compare(mask, OPS.sub(largest, spread), "LT")
    return OPS.compare(hidden, OPS.constant(np.zeros(shape, bool)), "EQ")
