"""Comparisons of codes, with a number or with other codes, and the places of their extremes."""

import math
from collections.abc import Sequence

import numpy as np

from jq.formats.arrays import NUMPY
from jq.formats.integer_functions import Output, tabulated
from jq.formats.requantize import DOUBLE
from jq.ir import OPS, Op, Program, dtype_of, ir, is_read, kind_of, maker, shape_of
from jq.ir.build import NAME, direction_of, integer, integers, string_attr
from jq.ir.decisions import rounded_as
from jq.ir.ops.integer_step import integer_step
from jq.ir.ops.selection import splat_of
from jq.passes.integer._sums import repeated
from jq.passes.integer._values import Leaf, centered, leaf_of, step_of
from jq.target.device_table import Device

_MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}


def comparison(program: Program, op: Op, device: Device) -> ir.Value | None:
    """A leaf compared exactly with a number or one of 8 bits, else with scales right to 2^-31.

    LiteRT's kernels round numbers to 1/256 first, for scales below 1, but for codes of 16 bits that
    are greater or less (https://github.com/google-ai-edge/LiteRT, tflite/kernels/comparisons.cc).
    """
    a, b = op.operands
    direction = direction_of(op)
    left, right = repeated(program, a), repeated(program, b)
    if left is None and right is not None and splat_of(program, a) is not None:
        left, right, b, direction = right, None, a, _MIRRORED.get(direction, direction)
    number = splat_of(program, b)
    if left is not None and number is not None:
        return _compared(left, direction, number)
    if left is None or right is None:
        return None
    kernel = bool(rounded_as(op.results[0], device))
    own = kernel and max(left.scale, right.scale) < 1
    encodings = {(v.scale, v.zero_point, dtype_of(v.codes).name) for v in (left, right)}
    if len(encodings) == 1 and not kernel:
        return OPS.compare(left.codes, right.codes, direction)
    if all(dtype_of(leaf.codes).name in ("int8", "uint8") for leaf in (left, right)):
        x, y = _ranked(program, [left, right], string_attr(op, NAME) or "compare", own)
        return OPS.compare(x, y, direction)
    if kernel and direction not in ("EQ", "NE"):
        return OPS.compare(left.codes, right.codes, direction)
    if own:
        x, y = (DOUBLE.by(OPS, OPS.shift_left(centered(v), 8), v.scale) for v in (left, right))
        return OPS.compare(x, y, direction)
    unit = max(left.scale, right.scale) / (1 << 30)
    (high, low), (other, rest) = (_words(leaf, round(leaf.scale / unit)) for leaf in (left, right))
    first, last = OPS.compare(high, other, direction), OPS.compare(low, rest, direction)
    return OPS.select(OPS.equal(high, other), last, first)


def _words(leaf: Leaf, by: int) -> tuple[ir.Value, ir.Value]:
    """Codes of 16 bits times one number up to 2^30, in two words of 32 bits, as devices have no
    64: the bits above the last 15, with the sign, and the last 15."""
    d = centered(leaf)
    low = OPS.mul(d, by & 0x7FFF)
    carry = OPS.shift_right_signed(low, 15)
    return OPS.add(OPS.mul(d, by >> 15), carry), OPS.sub(low, OPS.shift_left(carry, 15))


def finite(program: Program, op: Op, device: Device) -> ir.Value | None:
    """Codes stand for finite numbers."""
    return OPS.full(op.results[0], True) if leaf_of(program, op.operands[0]) else None


def _ranked(program: Program, leaves: Sequence[Leaf], name: str, own: bool) -> list[ir.Value]:
    """The places of numbers of two leaves in the order of all that they can be: tables."""
    ends = [np.iinfo(dtype_of(leaf.codes)) for leaf in leaves]
    units = [np.arange(e.min, e.max + 1) - v.zero_point for e, v in zip(ends, leaves, strict=True)]
    reals = [
        DOUBLE.by(NUMPY, unit.astype(np.int32) << 8, leaf.scale) if own else leaf.scale * unit
        for leaf, unit in zip(leaves, units, strict=True)
    ]
    known, found = np.unique(np.concatenate(reals)), list[ir.Value]()
    for leaf, end, real in zip(leaves, ends, reals, strict=True):
        places, out = np.searchsorted(known, real), Output(1.0, 0, 0, 2 * 256)
        index = OPS.add(centered(leaf), leaf.zero_point - int(end.min))
        codes = tabulated(OPS, index, places.astype(np.float64), out)
        step = step_of("table", name, [leaf.operand], steps=places).giving(out)
        found.append(OPS.convert(integer_step(program, codes, step), np.int32))
    return found


def _compared(leaf: Leaf, direction: str, number: float) -> ir.Value:
    """Codes compared with the last one for which the comparison of reals holds (or not)."""
    codes = np.arange(leaf.low, leaf.high + 1)
    reals = np.float32(leaf.scale) * (codes - leaf.zero_point).astype(np.float32)
    below, equal = int((reals < number).sum()), bool((reals == number).any())
    limit = leaf.low + below  # the first code that is not below the number
    wide = OPS.convert(leaf.codes, np.int32)
    after = limit + int(equal)
    if direction in ("EQ", "NE"):
        return OPS.compare(wide, limit if equal else leaf.high + 1, direction)
    bound = {"LT": limit, "GE": limit, "LE": after, "GT": after}[direction]
    return OPS.compare(wide, bound, "LT" if direction in ("LT", "LE") else "GE")


# The reducer of JAX's argmax (GT) and argmin (LT): arguments are 0 to 3, results go on from there.
_PLACE = "0 2, NE 0 0, or 4 5, EQ 0 2, LT 1 3, and 7 8, or 6 9, select 6 0 2, select 10 1 3"


def place(program: Program, op: Op, device: Device) -> ir.Value | None:
    """The least index where codes are their extreme along an axis: the second result of JAX's
    `argmax` and `argmin`, a reduce of numbers and their indices. None of other ops."""
    axes, two = integers(op, "dimensions"), len(op.operands) == 4 and not is_read(op.results[0])
    leaf = leaf_of(program, op.operands[0]) if two and len(axes) == 1 else None
    if leaf is None or (iota := maker(index := op.operands[1], "stablehlo.iota")) is None:
        return None
    shape, (end, _, reducer) = shape_of(index), _written(op.regions[0].blocks[0]).partition(" ")
    start = {"GT": -math.inf, "LT": math.inf}.get(end)
    if reducer != f"{_PLACE}, return 11 12" or splat_of(program, op.operands[2]) != start:
        return None
    extreme, axis = OPS.reduce_max if end == "GT" else OPS.reduce_min, axes[0]
    if integer(iota, "iota_dimension") != axis or dtype_of(index) != np.int32:
        return None
    best = OPS.broadcast(extreme(leaf.codes, [axis]), shape, range(len(shape)))
    beyond = OPS.full(index, np.int32(shape[axis]))
    least = OPS.reduce_min(OPS.select(OPS.equal(leaf.codes, best), index, beyond), [axis])
    return OPS.reshape(least, shape_of(op.results[1]))


def _written(block: ir.Block) -> str:
    """The ops of a block, with numbers for values: its arguments first, then results in order."""
    known, ops = {v: str(i) for i, v in enumerate(block.arguments)}, list[str]()
    for op in block.operations:
        kind = kind_of(op).removeprefix("stablehlo.")
        what = direction_of(op) if kind == "compare" else kind
        ops.append(" ".join([what, *(known.get(v, "?") for v in op.operands)]))
        known |= {v: str(len(known)) for v in op.results}
    return ", ".join(ops)
