"""Functions of codes in TOSA's 32-bit operators: the integers of `jq.formats.integer_functions`.

What depends on one code is looked up: TABLE of 256 codes, else GATHER. The quotient of softmax, 64
by 32 bits, is a long division of 31 steps a row; so are the root and inverse of a row's length."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np

from jq.base.errors import UserError
from jq.device.forms.canonical.base import Simple
from jq.device.forms.tosa.builder import WHOLE, Builder
from jq.device.forms.tosa.int32 import Int32, inverse, looked_up, normalized, root, squares
from jq.device.network import Tensor
from jq.formats.integer_functions import WIDE, exponential_bits, exponential_tables
from jq.frontends.tosa.schema import PROPAGATE


def table(b: Builder, step: Simple) -> None:
    """One function of every code; `codes` are of 8 or 16 bits."""
    (x,), codes = step.inputs, step.table
    if x.dtype == step.output.dtype == "int8":
        b.op("TABLE", [b.of(x), b.constant(codes, "int8")], step.output)
        return
    if x.dtype == "int8":  # the high and the low byte of the result: not every device has GATHER
        shape, parts = x.shape, (codes >> 8, (codes & 255) - 128)
        bytes_of = (b.op("TABLE", [b.of(x), b.constant(p, "int8")], (shape, "int8")) for p in parts)
        high, low = (
            b.rescale(part, np.array([by]), (shape, "int32"), (zero, 0))
            for part, by, zero in zip(bytes_of, (256.0, 1.0), (0, -128), strict=True)
        )
        b.rescale(b.op("ADD", [high, low], (shape, "int32")), WHOLE, step.output)
        return
    least = np.array([np.iinfo(x.dtype).min], np.int32)
    places = Int32(b, b.wide(replace(x, zero_point=least)))
    found = looked_up(codes, places, step.output.dtype)
    b.op("RESHAPE", [found.name, b.shape(step.output.shape)], step.output)


def gather_rows(b: Builder, step: Simple) -> None:
    """Rows of a table of codes or numbers."""
    rows, index = step.inputs
    count, (n, width) = math.prod(index.shape), (rows.shape[0], math.prod(rows.shape[1:]))
    if truth := rows.dtype == "bool":  # which GATHER does not have
        cast = b.op("CAST", [b.of(rows)], (rows.shape, "int8"))
        rows = Tensor(cast, rows.shape, "int8")
    flat = b.op("RESHAPE", [b.of(index), b.shape([1, count])], ([1, count], "int32"))
    flat_rows = (
        b.constant(rows.values, rows.dtype, [1, n, width])
        if rows.data is not None
        else b.op("RESHAPE", [b.of(rows), b.shape([1, n, width])], ([1, n, width], rows.dtype))
    )
    found = b.op("GATHER", [flat_rows, flat], ([1, count, width], rows.dtype))
    made = (step.output.shape, rows.dtype) if truth else step.output
    found = b.op("RESHAPE", [found, b.shape(step.output.shape)], made)
    if truth:
        b.op("CAST", [found], step.output)


def halves(b: Builder, x: Tensor) -> list[tuple[str, int]]:
    """Codes of 16 bits as two of 8, `256 high + low`, each with its zero point; low is moved by
    -128."""
    codes = Int32(b, b.wide(replace(x, zero_point=None)))
    parts = codes >> 8, (codes & 255) - 128
    names = [b.rescale(p.name, WHOLE, (x.shape, "int8")) for p in parts]
    return list(zip(names, (x.zero >> 8, (x.zero & 255) - 128), strict=True))


def joined(b: Builder, sums: Sequence[str], step: Simple) -> str:
    """The sum of products of both halves, in units of 2^-bits that leave 32 bits, rounded as
    `jq.formats.requantize.rounding_right_shift` rounds."""
    high, low = (Int32(b, name) for name in sums)
    bits = -int(step.numbers["bits"].reshape(())) if "bits" in step.numbers else 0
    if bits:
        half = 1 << (bits - 1)
        low = low + (high + (low >> 8) >= 0).choose(half, half - 1)
    if bits >= 8:
        return ((high + (low >> 8)) >> (bits - 8)).name
    return ((high << (8 - bits)) + (low >> bits)).name


def product(b: Builder, step: Simple, bits: int) -> str:
    """A product of 16-bit codes in units of 2^bits, ties away from zero, by MUL of magnitudes."""
    terms = [Int32(b, b.wide(t)) for t in step.inputs]
    found = terms[0].of("ABS").times(terms[1].of("ABS"), bits)
    for term in terms:
        found = found.times((term >= 0).choose(1, -1))
    return found.name


def softmax(b: Builder, step: Simple) -> None:
    """Exponentials of differences by tables, their sum, its inverse, and the products."""
    shape, given = step.output.shape, step.numbers
    unit, along = float(given["step"].reshape(())), int(given["axis"].reshape(()))
    k, scores = exponential_bits(shape[along]), _scores(b, step)
    below = scores.along("REDUCE_MAX", along, nan_mode=PROPAGATE) - scores
    e = _exponentials(below, unit, k)
    total = e.along("REDUCE_SUM", along)
    share = e.times(inverse(total, k), k + 1)  # in units of 2^-30
    alone = total.of("EQUAL", 1 << k, dtype="bool")  # the inverse is 2^31 then
    b.codes(alone.choose(e << (30 - k), share).name, step, np.array([2.0**-30 / step.out.scale]))


def _scores(b: Builder, step: Simple) -> Int32:
    """The sum of scores and masks in units of softmax."""
    terms, largest, factors = list[Int32](), 0.0, step.numbers["by"].reshape(-1)
    for x, by in zip(step.inputs[: len(factors)], factors, strict=True):
        name = b.wide(x)
        largest += x.largest * by
        if by != 1:
            name = b.rescale(name, np.array([by]), (x.shape, "int32"))
        terms.append(Int32(b, name))
    if largest >= 1 << 30:
        raise UserError("a mask beyond 2^30 steps of its scores has no form in TOSA", op=step.name)
    total = reduce(add, terms)
    if (where := step.numbers.get("where")) is not None:
        condition = Int32(b, b.of(step.inputs[-1]))
        return condition.choose(*[total.full(-WIDE), total][:: 1 if where.any() else -1])
    if (hidden := step.numbers.get("hidden")) is None:
        return total
    known = Int32(b, b.constant(np.broadcast_to(hidden, total.shape), "bool"))
    return known.choose(total.full(-WIDE), total)


def _exponentials(below: Int32, unit: float, k: int) -> Int32:
    """`jq.formats.integer_functions.exponentials`."""
    bits, high, low = exponential_tables(unit, k)
    index = (below >> bits).of("MINIMUM", len(high) - 1, nan_mode=PROPAGATE)
    found = looked_up(high, index)
    if bits:
        found = found.times(looked_up(low, below & ((1 << bits) - 1)), 30)
    return found


def normalization(b: Builder, step: Simple) -> None:
    """Rows divided by their length: `jq.formats.integer_functions.unit_rows`. A row's inverse is
    found in 31 bits; as c^2 2^(2 half) < 2^62, c 2^half fits in 32 bits."""
    (x,), out, given = step.inputs, step.out, step.numbers
    n, axis, ends = x.shape[-1], len(x.shape) - 1, np.iinfo(x.dtype)
    unit, widest = float(given["step"].reshape(())), int(ends.max) - int(ends.min)
    if n**3 * widest**2 >= 1 << 63:
        raise UserError(f"normalization of rows of {n} has no form in TOSA", op=step.name)
    c, largest = Int32(b, b.wide(x)), x.largest
    if given["center"]:
        c = c.times(n) - c.along("REDUCE_SUM", axis)
        unit, largest = unit / n, n * widest
    small = max(1, min(round(n * float(given["epsilon"].reshape(())) / unit**2), 1 << 58))
    size = c.of("ABS")
    high, low, half = normalized(*squares(size, largest.bit_length(), axis, small))
    found = (size << half).times(inverse(root(high, low), 30), 31)
    signed = (c >= 0).choose(found, found.full(0) - found)
    factor = given["gamma"].reshape(-1) * math.sqrt(n) * 2.0**-30 / out.scale
    made = replace(step, numbers={**given, "behind": given["beta"].reshape(-1) / out.scale})
    b.codes(signed.name, made, factor)


def quotient(b: Builder, step: Simple) -> None:
    """`jq.formats.integer_functions.ratio`, bit by bit."""
    (x, y), out = step.inputs, step.out
    bits, unit = (float(step.numbers[k].reshape(())) for k in ("bits", "unit"))
    over, under = (Int32(b, b.wide(t)) for t in (x, y))
    size, by = over.of("ABS"), under.of("ABS").of("MAXIMUM", 1, nan_mode=PROPAGATE)
    highest, end = x.largest.bit_length(), (1 << 31) - 1
    rest, found = size.full(0), size.full(0)
    for at in range(highest - 1, -1 - int(bits), -1):
        rest = (rest << 1) + ((size >> at) & 1) if at >= 0 else rest << 1
        fits = rest >= by
        rest = fits.choose(rest - by, rest)
        found = (found >= 1 << 30).choose(end, (found << 1) + fits.choose(1, 0))
    nearer = (rest + (by >> 1) >= by).choose(1, 0)
    found = found + (found >= end).choose(0, nearer)
    found = (under.of("ABS") >= 1).choose(found, (size >= 1).choose(end, 0))
    for term in (over, under):
        found = found.times((term >= 0).choose(1, -1))
    b.codes(found.name, step, np.array([unit * 2.0**-bits / out.scale]))
