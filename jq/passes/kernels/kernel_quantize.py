"""Activations are quantized by a kernel, one pass over each row.

    composite "jq.quantize_dynamic" %x  ->  call @jq_quantize_rows(%x)

Fires on int8, one scale a row of the last axis, a block of it or a sample (or in all, if given);
and on floats that are rounded to a format with blocks."""

import math

import numpy as np

from jq.formats import Encoding, affine_format
from jq.formats.affine_math import FULL, NARROW
from jq.ir import OPS, Op, Program, at, dtype_of, ir, kind_of, one_step, shape_of
from jq.ir.build import NAME, integers, string_attr
from jq.ir.markers import DEQUANTIZE, QUANTIZE, QUANTIZE_DYNAMIC, Marker, match
from jq.ir.ops.selection import combines
from jq.kernels import QuantizeBlocks, QuantizeRows, RowQuantization, RowRanges
from jq.kernels.rowwise import description
from jq.passes.base import Pass, PassContext
from jq.passes.kernels import _kernel
from jq.passes.rewrite import Rewrite

ROWS = 16  # of a tensor that has one scale: what threads share
VECTORS = 64  # rows of a multiple of this need no partial vectors


class KernelQuantize(Rewrite):
    tidies = False

    def replacement(self, program: Program, op: Op, cx: PassContext) -> list[ir.Value] | None:
        isa = _kernel.isa_of(cx.target)
        marker = match(op, QUANTIZE, QUANTIZE_DYNAMIC, DEQUANTIZE)
        if isa is None or marker is None:
            return None
        if marker.kind == DEQUANTIZE:
            return _rounded(program, marker, isa)
        scheme = row_scheme(program, marker) or measured_scheme(marker) or part_scheme(marker)
        return _quantize(program, marker, scheme, isa) if scheme else None


def _rounded(program: Program, marker: Marker, isa: str) -> list[ir.Value] | None:
    """The floats that codes of the data themselves stand for, where nothing moves the codes."""
    made = match(marker.parts.get("codes"), QUANTIZE_DYNAMIC)
    if made is None or (made.encoding, made.parts) != (marker.encoding, marker.parts):
        return None
    kernel = QuantizeBlocks.of(isa, made.encoding, coded=False)
    if kernel is None or kernel.whole:
        return None
    (rounded,) = _kernel.quantize_blocks(program, kernel, made)
    result = marker.op.results[0]
    return [OPS.convert(OPS.reshape(rounded, shape_of(result)), dtype_of(result))]


def row_scheme(program: Program, marker: Marker) -> RowQuantization | None:
    """The kernel's name for an encoding of rows; None when it has none."""
    enc = marker.encoding
    narrow = _narrow(enc)
    if narrow is None:
        return None
    if marker.kind == QUANTIZE:
        if any(enc.block) or static_parameters(program, marker) is None:
            return None
        return RowQuantization(description.STATIC, narrow and "zero_point" not in marker.parts)
    if not _by_row(enc) or (enc.block[-1] and enc.shape[-1] > 1):
        return None
    return _scheme(enc, narrow)


def wide_codes(program: Program, marker: Marker) -> tuple[int, int] | None:
    """Smallest and largest code of a quantization to 16 bits whose parameters are one each, and
    known; None of any other."""
    enc = marker.encoding
    plain = marker.kind == QUANTIZE and enc.format == "int16" and not any(enc.block)
    if not plain or static_parameters(program, marker) is None:
        return None
    return affine_format(enc.format).limits(enc)


def measured_scheme(marker: Marker) -> RowQuantization | None:
    """The scheme of a tensor whose one scale is found at run time, and given; None elsewhere."""
    narrow = _narrow(marker.encoding)
    if marker.kind != QUANTIZE or any(marker.encoding.block) or narrow is None:
        return None
    return RowQuantization(
        description.STATIC, narrow and "zero_point" not in marker.parts, measured=True
    )


def part_scheme(marker: Marker) -> RowQuantization | None:
    """The scheme of samples, or of rows cut into whole blocks, each of which is a row to the
    kernel; None elsewhere."""
    enc, narrow = marker.encoding, _narrow(marker.encoding)
    if marker.kind != QUANTIZE_DYNAMIC or narrow is None:
        return None
    size = enc.block[-1] if _by_row(enc) else 0
    whole = size > 1 and enc.shape[-1] % size == 0
    return _scheme(enc, narrow) if whole or _by_sample(enc) else None


def _scheme(enc: Encoding, narrow: bool) -> RowQuantization:
    return RowQuantization(
        description.ASYMMETRIC if enc.scheme == "asymmetric" else description.SYMMETRIC,
        narrow=narrow,
    )


def _by_sample(enc: Encoding) -> bool:
    """True if all of each index of the first axis has parameters of its own."""
    return len(enc.shape) > 2 and enc.block[0] == 1 and not any(enc.block[1:])


def _narrow(enc: Encoding) -> bool | None:
    """True if symmetric codes are as many on each side of zero; None for fewer, or no int8 rows."""
    if enc.format != "int8" or not enc.shape or 0 in enc.shape:
        return None
    return {NARROW: True, FULL: False}.get(enc.option("divisor", NARROW))


def _by_row(enc: Encoding) -> bool:
    """True if every row of the last axis has parameters of its own."""
    lead = zip(enc.block[:-1], enc.shape[:-1], strict=True)
    return bool(enc.shape) and all(b == 1 or n == 1 for b, n in lead)


def static_parameters(program: Program, marker: Marker) -> list[np.ndarray] | None:
    """Scale f32 [1] and zero point i32 [1] of a `jq.quantize`; None when they are not constant, or
    the scale is none that kernels divide by."""
    known = one_step(program, marker.parts)
    if known is None or not description.SMALLEST_SCALE <= known[0] <= description.LARGEST_SCALE:
        return None
    scale, zero = known
    return [np.full(1, scale, np.float32), np.full(1, zero, np.int32)]


def _quantize(
    program: Program, marker: Marker, scheme: RowQuantization, isa: str
) -> list[ir.Value]:
    x = OPS.convert(marker.op.operands[0], np.float32)  # formats compute in float32
    samples, shape = scheme.dynamic and _by_sample(marker.encoding), shape_of(x)
    m, k = (shape[0], math.prod(shape[1:])) if samples else _kernel.rows_and_columns(shape)
    size = marker.encoding.block[-1] if scheme.dynamic else 0
    scaled = _kernel.column_factors(program, x) if size < 2 and not samples else None
    if size > 1:  # each block is a row of its own
        m, k = m * k // size, size
    if not scheme.dynamic and k % VECTORS and scaled is None:
        rows = math.gcd(m * k, ROWS)  # one scale in all: narrow rows are cut anew
        m, k = rows, m * k // rows
    kernel = QuantizeRows(isa=isa, m=m, k=k, scheme=scheme, factors=scaled is not None)
    operands = [x]
    if scaled is not None:
        operands = [scaled[0], program.add_weight(f"{marker.tensor}:factors", scaled[1])]
    if scheme.measured:
        operands += _measured(marker)
    elif not scheme.dynamic:
        operands += map(OPS.constant, static_parameters(program, marker) or ())
    results = _kernel.call_kernel(program, kernel, operands, f"{marker.tensor}/quantize")
    wanted = [shape_of(r) for r in marker.op.results]
    return [OPS.reshape(v, shape) for v, shape in zip(results, wanted, strict=True)]


def _measured(marker: Marker) -> list[ir.Value]:
    """Scale f32 [1] and zero point i32 [1] of a tensor, as values."""
    scale = OPS.convert(OPS.reshape(marker.parts["scale"], [1]), np.float32)
    if "zero_point" not in marker.parts:
        return [scale, OPS.constant(np.zeros(1, np.int32))]
    return [scale, OPS.convert(OPS.reshape(marker.parts["zero_point"], [1]), np.int32)]


# The range of a tensor that is quantized by it is found in one pass over the tensor.
#
#     %low = reduce minimum %x over all axes       %lows, %highs = call @jq_row_ranges(%x)
#     %high = reduce maximum %x over all axes  ->  %low = reduce minimum %lows
#     ... jq.quantize %x, (scale of %low, %high)   %high = reduce maximum %highs
#
# Fires on float32 of which both ends are wanted, as for dynamic quantization of whole tensors.
ENDS = ("minimum", "maximum")
SMALL = 1 << 10  # elements: less is nothing


class KernelRanges(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        isa = _kernel.isa_of(cx.target)
        found = list(_ranges(program).items()) if isa else []
        for x, ends in found:
            _lower_range(program, x, ends, isa or "")
        return bool(found)


def _ranges(program: Program) -> dict[ir.Value, dict[str, list[Op]]]:
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
    every = sorted(integers(op, "dimensions")) == list(range(len(shape_of(x))))
    whole = kind_of(op) == "stablehlo.reduce" and op.operands[0] == x and every
    return how if whole and (how := combines(op)) in ENDS else None


def _lower_range(program: Program, x: ir.Value, ends: dict[str, list[Op]], isa: str) -> None:
    m, k = _kernel.rows_and_columns(shape_of(x))
    if k % VECTORS:
        rows = math.gcd(m * k, ROWS)  # in any order: narrow rows are cut anew
        m, k = rows, m * k // rows
    every = [op for ops in ends.values() for op in ops]
    first = next(op for op in every[0].operation.block.operations if op in every)
    name = string_attr(first, NAME) or "range"
    with at(first):
        parts = _kernel.call_kernel(program, RowRanges(isa=isa, m=m, k=k), [x], f"{name}/rows")
    rules = (OPS.reduce_min, OPS.minimum), (OPS.reduce_max, OPS.maximum)
    for how, part, (reduced, joined) in zip(ENDS, parts, rules, strict=True):
        for op in ends[how]:
            with at(op):
                value = joined(OPS.reshape(reduced(part, [0]), ()), op.operands[1])
            op.results[0].replace_all_uses_with(value)
            op.erase()
