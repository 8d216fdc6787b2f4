"""Integers of 4 and 2 bits are computed as bytes within the narrower range.

    add %a, %b : i4    ->   ((%a + %b) << 4) >> 4 : i8
    add %a, %b : ui4   ->   (%a + %b) & 15 : i8

What the program takes and gives has a byte for each number too, and so have such weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np

from jq.ir import CONTROL, OPS, Op, Program, at, dtype_of, ir, shape_of, walk
from jq.ir.build import recast, replace, strided_slice
from jq.ir.types import is_narrow
from jq.passes._retype import retype, retype_functions, values_of
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import Mend

BYTE = np.dtype(np.int8)


def width_of(kind: np.dtype[Any]) -> int:
    return int(ml_dtypes.iinfo(kind).bits)


def bits(x: ir.Value, kind: np.dtype[Any]) -> ir.Value:
    """The lowest bits of bytes, the others zero."""
    return OPS.bit_and(x, full(x, 2 ** width_of(kind) - 1))


def number(x: ir.Value, kind: np.dtype[Any]) -> tuple[ir.Value, ir.Value]:
    """The number that the lowest bits of bytes are, after the only op here that reads `x`."""
    if ml_dtypes.iinfo(kind).min == 0:
        return (masked := bits(x, kind)), masked
    rest = full(x, 8 - width_of(kind))
    return (high := OPS.shift_left(x, rest)), OPS.shift_right_signed(high, rest)


def full(like: ir.Value, value: int) -> ir.Value:
    return OPS.full(like, BYTE.type(value))


def split(x: ir.Value, kind: np.dtype[Any], shape: Sequence[int]) -> ir.Value:
    """The numbers that lie in wider integers, along a new last axis, the lowest bits first."""
    size = dtype_of(x).itemsize
    whole = recast(x, BYTE, [*shape_of(x), *[size][: size > 1]])
    shifted = [OPS.shift_right(whole, full(whole, start)) for start in range(0, 8, width_of(kind))]
    parts = [OPS.reshape(number(v, kind)[1], [*shape_of(v), 1]) for v in shifted]
    return OPS.reshape(OPS.concatenate(parts, len(shape_of(whole))), shape)


def join(x: ir.Value, kind: np.dtype[Any], shape: Sequence[int], dtype: np.dtype[Any]) -> ir.Value:
    """The wider integers that numbers along the last axis make up, the lowest bits first."""
    per = 8 // width_of(kind)
    whole = [*shape, *[dtype.itemsize][: dtype.itemsize > 1]]
    groups = OPS.reshape(bits(x, kind), [*whole, per])

    def part(i: int) -> ir.Value:
        start, stop = [*[0] * len(whole), i], [*whole, i + 1]
        one = strided_slice(groups, start, stop, [1] * len(start))
        return OPS.shift_left(one, full(one, i * width_of(kind)))

    joined = reduce(OPS.bit_or, [part(i) for i in range(per)])
    return recast(OPS.reshape(joined, whole), dtype, shape)


SHIFT = "stablehlo.shift_"
LEADING = "stablehlo.count_leading_zeros"
OF_BITS = ("stablehlo.popcnt", LEADING, "stablehlo.shift_right_logical")  # read no number
Kind = np.dtype[Any]


class PlainNibbles(Mend):
    """Integers of 4 and 2 bits that do not fill whole bytes are refused, and others are wrong.
    Trap: traps/test_refused.py::test_integers_of_four_bits
    Report: iree-org/iree#16250"""

    def left(self, program: Program) -> list[ir.Value]:
        blocks = [f.entry_block for f in program.functions()]
        return [v for block in blocks for v in values_of(block) if is_narrow(v)]

    def run(self, program: Program, cx: PassContext) -> bool:
        blocks = [f.entry_block for f in program.functions()]
        kinds = {v: dtype_of(v) for v in self.left(program)}
        if not kinds:
            return False
        ops = [op for block in blocks for op in walk(block)]
        values = ((op, (*op.operands, *op.results)) for op in ops)
        uses = [_Use.of(op, kinds) for op, there in values if any(v in kinds for v in there)]
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

    @staticmethod
    def of(op: Op, kinds: dict[ir.Value, Kind]) -> "_Use":
        first = next(iter(op.operands), None)
        return _Use(op.operation, kinds.get(first), tuple(map(kinds.get, op.results)))


def _rewrite(use: _Use) -> None:
    """An op on bytes gives what it gave; its operands are within their ranges."""
    op = use.op
    if op.name == "stablehlo.bitcast_convert":
        with at(op):
            replace(op, [_bitcast(use)])
        return
    with at(op):
        _prepare(use)
    # The only op of a reduction or a scatter has its result brought into the range instead.
    reduces = len(op.block.operations) == 2 and op.parent.name not in (*CONTROL, "func.func")
    # Regions give back what other ops have made, which is within the range.
    if op.name in (*CONTROL, "stablehlo.constant") or reduces:
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
