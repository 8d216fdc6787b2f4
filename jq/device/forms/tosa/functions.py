"""Functions of codes in TOSA's 32-bit operators: the integers of `jq.formats.integer_functions`.

What depends on one code is looked up: TABLE of 256 codes, else GATHER. The quotient of softmax, 64
by 32 bits, is a long division of 31 steps for each row.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jq.base.errors import UserError
from jq.device.forms.canonical.base import Simple
from jq.device.forms.tosa.builder import Builder
from jq.device.network import Tensor
from jq.formats.arrays import NUMPY
from jq.formats.integer_functions import exponential_bits, exponentials, tabulated
from jq.frontends.tosa.schema import PROPAGATE

MULTIPLE = "softmax of codes finer than 2^-17 has no form in TOSA"


def table(b: Builder, step: Simple) -> None:
    """One function of every code."""
    (x,), out, steps = step.inputs, step.out, step.numbers["steps"].reshape(-1)
    assert out is not None
    index = np.arange(len(steps), dtype=np.int32)
    if "whole" in step.numbers:  # of 16 bits as well
        codes = np.clip(steps + out.zero_point, out.low, out.high).astype(out.dtype)
    else:
        codes = np.asarray(tabulated(NUMPY, index, steps.astype(np.float64), out))
    if x.dtype == step.output.dtype == "int8":
        b.op("TABLE", [b.of(x), b.constant(codes, "int8")], step.output)
        return
    least = np.array([np.iinfo(x.dtype).min], np.int32)
    numbers = b.wide(replace(x, zero_point=least))
    found = looked_up(b, codes, step.output.dtype, numbers, x.shape)
    b.op("RESHAPE", [found, b.shape(step.output.shape)], step.output)


def looked_up(b: Builder, values: np.ndarray, dtype: str, index: str, shape: Sequence[int]) -> str:
    """The elements of a table at int32 indices of any shape, as a tensor of that shape."""
    count = int(np.prod(shape))
    flat = b.op("RESHAPE", [index, b.shape([1, count])], ([1, count], "int32"))
    rows = b.constant(values, dtype, [1, values.size, 1])
    found = b.op("GATHER", [rows, flat], ([1, count, 1], dtype))
    return b.op("RESHAPE", [found, b.shape(shape)], (shape, dtype))


def gather_rows(b: Builder, step: Simple) -> None:
    """Rows of a table of codes; indices beyond its ends are those of its ends."""
    rows, index = step.inputs
    count, (n, width) = int(np.prod(index.shape)), (rows.shape[0], int(np.prod(rows.shape[1:])))
    if rows.dtype not in ("int8", "int16") or index.dtype != "int32":
        raise UserError(
            f"rows of {rows.dtype} by indices of {index.dtype} have no form in TOSA",
            op=step.name,
            hint="indices are int32 there",
        )
    flat = b.op("RESHAPE", [b.of(index), b.shape([1, count])], ([1, count], "int32"))
    for kind, end in (("MAXIMUM", 0), ("MINIMUM", n - 1)):
        limit = b.constant([end], "int32", [1, 1])
        flat = b.op(kind, [flat, limit], ([1, count], "int32"), nan_mode=PROPAGATE)
    flat_rows = (
        b.constant(rows.values, rows.dtype, [1, n, width])
        if rows.data is not None
        else b.op("RESHAPE", [b.of(rows), b.shape([1, n, width])], ([1, n, width], rows.dtype))
    )
    found = b.op("GATHER", [flat_rows, flat], ([1, count, width], rows.dtype))
    b.op("RESHAPE", [found, b.shape(step.output.shape)], step.output)


def softmax(b: Builder, step: Simple) -> None:
    """Exponentials by a table of differences, their sum, its inverse, and the products."""
    (x,), out = step.inputs, step.out
    unit, axis = (float(step.numbers[k].reshape(())) for k in ("step", "axis"))
    assert out is not None
    assert x.scale is not None
    if float(x.scale.reshape(-1)[0]) != np.float32(unit):
        raise UserError(MULTIPLE, op=step.name, hint="use wider ranges: it was fed almost nothing")
    along, shape = int(axis), x.shape
    row = [1 if i == along else n for i, n in enumerate(shape)]
    k, codes = exponential_bits(shape[along]), 1 << np.iinfo(x.dtype).bits
    largest = b.op("REDUCE_MAX", [b.of(x)], (row, x.dtype), axis=along, nan_mode=PROPAGATE)
    top = b.wide(Tensor(largest, tuple(row), x.dtype, x.scale, x.zero_point))
    below = b.op("SUB", [top, b.wide(x)], (shape, "int32"))
    powers = exponentials(NUMPY, np.arange(codes, dtype=np.int64), unit, shape[along])
    e = looked_up(b, np.asarray(powers), "int32", below, shape)
    total = b.op("REDUCE_SUM", [e], (row, "int32"), axis=along)
    inverse, shift = _inverse(b, total, row, k), b.constant([k + 1], "int8", [1])
    share = b.op("MUL", [e, inverse, shift], (shape, "int32"))  # in units of 2^-30
    one = b.constant([1 << k], "int32", [1] * len(row))
    alone = b.op("EQUAL", [total, one], (row, "bool"))  # the inverse is 2^31 then
    by = b.constant([30 - k], "int32", [1] * len(row))
    whole = b.op("LOGICAL_LEFT_SHIFT", [e, by], (shape, "int32"))
    share = b.op("SELECT", [alone, whole, share], (shape, "int32"))
    b.codes(share, step, shape, np.array([2.0**-30 / out.scale]))


def _inverse(b: Builder, total: str, row: Sequence[int], k: int) -> str:
    """`floor(2^(k + 31) / total)` of total in (2^k, 2^31), bit by bit; 2^31 - 1 of 2^k."""
    made, flag = (row, "int32"), (row, "bool")
    zero, one, rest = (b.constant(np.full(row, v), "int32", row) for v in (0, 1, 1 << k))
    quotient = zero
    for _ in range(31):
        lack = b.op("SUB", [total, rest], made)  # 2 rest >= total, without 2 rest
        fits = b.op("GREATER_EQUAL", [rest, lack], flag)
        less, twice = b.op("SUB", [rest, lack], made), b.op("ADD", [rest, rest], made)
        rest = b.op("SELECT", [fits, less, twice], made)
        bit = b.op("SELECT", [fits, one, zero], made)
        quotient = b.op("ADD", [b.op("ADD", [quotient, quotient], made), bit], made)
    return quotient
