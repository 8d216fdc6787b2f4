"""The range of a tensor that is quantized by it is found in one pass over the tensor.

    %low = reduce minimum %x over all axes       %lows, %highs = call @jq_row_ranges(%x)
    %high = reduce maximum %x over all axes  ->  %low = reduce minimum %lows
    ... jq.quantize %x, (scale of %low, %high)   %high = reduce maximum %highs

Fires on float32 of which both ends are wanted, as dynamic quantization of whole tensors wants them.
"""

import math
from typing import Any

import numpy as np

from jq.ir import Op, Program, at, dtype_of, ir, shape_of
from jq.ir.build import NAME, integers, string_attr
from jq.ir.markers import QUANTIZE, match
from jq.ir.values import kind_of
from jq.kernels import RowRanges
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._kernel import OPS, call_kernel, isa_of, rows_and_columns
from jq.passes.kernels.kernel_quantize import ROWS, VECTORS

ENDS = ("stablehlo.minimum", "stablehlo.maximum")
SMALL = 1 << 10  # elements: less is nothing


class KernelRanges(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        isa = isa_of(cx.target)
        found = list(_found(program).items()) if isa else []
        for x, ends in found:
            _lower(program, x, ends, isa or "")
        return bool(found)


def _found(program: Program) -> dict[ir.Value, dict[str, list[Op]]]:
    """Values that are quantized, and the reductions that are their ends."""
    reductions: dict[ir.Value, dict[str, list[Op]]] = {}
    for op in program.walk():
        marker = match(op, QUANTIZE)
        if marker is not None and not any(marker.encoding.block):
            reductions.setdefault(op.operands[0], {})
    for x, ends in reductions.items():
        whole = dtype_of(x) == np.float32 and math.prod(shape_of(x)) >= SMALL
        for use in x.uses if whole else ():
            if (how := _end(use.owner, x)) is not None:
                ends.setdefault(how, []).append(use.owner)
    return {x: ends for x, ends in reductions.items() if len(ends) == len(ENDS)}


def _end(op: Op, x: ir.Value) -> str | None:
    """The end of `x` that a reduction over all of it finds."""
    if kind_of(op) != "stablehlo.reduce" or len(op.results) != 1:
        return None
    every = sorted(integers(op, "dimensions")) == list(range(len(shape_of(x))))
    body: Any = op.regions[0].blocks[0]
    first, *rest = (inner.operation.name for inner in body.operations)
    plain = every and op.operands[0] == x and len(rest) == 1
    return first if plain and first in ENDS else None


def _lower(program: Program, x: ir.Value, ends: dict[str, list[Op]], isa: str) -> None:
    m, k = rows_and_columns(shape_of(x))
    if k % VECTORS:
        rows = math.gcd(m * k, ROWS)  # in any order: narrow rows are cut anew
        m, k = rows, m * k // rows
    every = [op for ops in ends.values() for op in ops]
    first = next(op for op in every[0].operation.block.operations if op in every)
    name = string_attr(first, NAME) or "range"
    with at(first):
        parts = call_kernel(program, RowRanges(isa=isa, m=m, k=k), [x], f"{name}/rows")
    for how, part in zip(ENDS, parts, strict=True):
        for op in ends[how]:
            with at(op):
                lowest = how == ENDS[0]
                found = (OPS.reduce_min if lowest else OPS.reduce_max)(part, [0])
                start = op.operands[1]
                end = OPS.reshape(found, ())
                value = (OPS.minimum if lowest else OPS.maximum)(end, start)
            op.results[0].replace_all_uses_with(value)
            op.erase()
