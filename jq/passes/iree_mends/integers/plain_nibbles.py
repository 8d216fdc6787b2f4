"""Integers of 4 and 2 bits are computed as bytes within the narrower range.

    add %a, %b : i4    ->   ((%a + %b) << 4) >> 4 : i8
    add %a, %b : ui4   ->   (%a + %b) & 15 : i8

What the program takes and gives back has a byte for each number too, and so have weights of such
types.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import Op, Program, at, dtype_of, ir, shape_of, walk
from jq.ir.build import replace
from jq.ir.constants import dense_array
from jq.ir.types import is_narrow
from jq.passes.base import PassContext
from jq.passes.iree_mends.integers._nibbles import (
    BYTE,
    OPS,
    bits,
    full,
    join,
    number,
    split,
    width_of,
)
from jq.passes.iree_mends.integers._retype import retype, retype_functions, values_of
from jq.passes.iree_mends.mend import Mend

# Their regions give back what other ops have made, which is within the range.
GROUPS = ("stablehlo.while", "stablehlo.case", "stablehlo.if")
SHIFT = "stablehlo.shift_"
LEADING = "stablehlo.count_leading_zeros"
OF_BITS = ("stablehlo.popcnt", LEADING, "stablehlo.shift_right_logical")  # read no number
Kind = np.dtype[Any]


@dataclass(frozen=True)
class PlainNibbles(Mend):
    """Integers of 4 and 2 bits that do not fill whole bytes are refused, and others are wrong.
    Trap: traps/test_refused.py::test_integers_of_four_bits
    Report: iree-org/iree#16250
    """

    name = "plain-nibbles"

    def left(self, program: Program) -> list[ir.Value]:
        blocks = [f.entry_block for f in program.functions()]
        return [v for block in blocks for v in values_of(block) if is_narrow(v)]

    def run(self, program: Program, cx: PassContext) -> bool:
        blocks = [f.entry_block for f in program.functions()]
        kinds = {v: dtype_of(v) for v in self.left(program)}
        if not kinds:
            return False
        ops = [op for block in blocks for op in walk(block)]
        uses = [_use_of(op, kinds) for op in ops if any(v in kinds for v in _values_at(op))]
        for use in uses:
            if use.op.name == "stablehlo.constant":
                _store_bytes(use.op)
        for value in kinds:
            retype(value, BYTE)
        for name, array in program.weights.items():
            if array.dtype in kinds.values():
                program.weights[name] = np.asarray(array).astype(BYTE)
        for use in uses:
            _rewrite(use)
        retype_functions(program)
        program.refresh()
        return True


@dataclass(frozen=True)
class _Use:
    """An op, and the narrow types that its first operand and its results had."""

    op: Op
    source: Kind | None
    results: tuple[Kind | None, ...]


def _values_at(op: Op) -> tuple[ir.Value, ...]:
    return (*op.operation.operands, *op.operation.results)


def _use_of(op: Op, kinds: dict[ir.Value, Kind]) -> _Use:
    first = next(iter(op.operation.operands), None)
    return _Use(op.operation, kinds.get(first), tuple(kinds.get(v) for v in op.operation.results))


def _store_bytes(constant: Any) -> None:
    array = dense_array(constant.result)
    assert array is not None
    with at(constant):
        constant.attributes["value"] = ir.DenseElementsAttr.get(array.astype(BYTE))


def _rewrite(use: _Use) -> None:
    """An op on bytes gives what it gave; its operands are within their ranges."""
    op = use.op
    if op.name == "stablehlo.bitcast_convert":
        with at(op):
            replace(op, [_bitcast(use)])
        return
    with at(op):
        _prepare(use)
    if op.name in (*GROUPS, "stablehlo.constant") or _is_reducer(op):
        return
    with at(op, after=True):
        for value, kind in zip(op.results, use.results, strict=True):
            if kind is not None:
                _confine(value, kind, less=op.name == LEADING)


def _prepare(use: _Use) -> None:
    """Operands that are read as bits, or as how far to shift them."""
    op, kind = use.op, use.source
    if op.name == "stablehlo.compare" and "compare_type" in op.attributes:
        op.attributes["compare_type"] = ir.Attribute.parse("#stablehlo<comparison_type SIGNED>")
    if kind is None:
        return
    if op.name in OF_BITS:
        op.operands[0] = bits(op.operands[0], kind)
    if op.name == "stablehlo.shift_right_arithmetic":  # whose highest bit is the sign
        op.operands[0] = number(op.operands[0], np.dtype(f"int{width_of(kind)}"))[1]
    if op.name.startswith(SHIFT):  # as far as all bits, or farther
        far = bits(op.operands[1], kind)
        op.operands[1] = OPS.minimum(far, full(far, 7))


def _is_reducer(op: Op) -> bool:
    """The only op of a reduction or a scatter, whose result is brought into the range instead."""
    return len(op.block.operations) == 2 and op.parent.name not in (*GROUPS, "func.func")


def _confine(x: ir.Value, kind: Kind, less: bool) -> None:
    """All readers of bytes get the numbers in them; `less`: zeros of whole bytes were counted."""
    if less:
        first = last = OPS.sub(x, full(x, 8 - width_of(kind)))
    else:
        first, last = number(x, kind)
    x.replace_all_uses_except(last, first.owner.operation)


def _bitcast(use: _Use) -> ir.Value:
    x, result, (target,) = use.op.operands[0], use.op.result, use.results
    if target is None:
        assert use.source is not None
        return join(x, use.source, shape_of(result), dtype_of(result))
    return number(x, target)[1] if use.source else split(x, target, shape_of(result))
