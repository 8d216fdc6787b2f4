"""Products of codes with weights in blocks of the contracted axis, or of fewer than 8 bits.

    composite "jq.contract" %x.codes, %x.scale, %w.codes, %w.scale   (dot_general)
    [add bias] [activation] [add residual]
    ->
    call @jq_gemv(%x.codes, %x.scale, %w.packed, ...)

Without the kernel every block is a product of its own, whose sums lie in memory, and codes of 4
bits take a byte each. Fires on integer weights and on ggml's types, with activations of one scale
a row or one a block; also on weights with one scale a column, where the activations have blocks.
Activations of int16 in blocks whose codes are two int8 digits (divisor `absmax/63`) are multiplied
a digit after the other, with weights that are read once.
What zero points of rows add is taken off after the product: `y - zero[row] * sum[column]`. With
one scale a column all of that is in whole numbers that float32 holds, scaled last: the bits of the
`integer` level. With blocks the result differs from it by the order of a float32 sum of blocks, and
by the rounding of that product.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from jq.formats import Encoding, get_format
from jq.formats.affine import affine_format, is_affine
from jq.formats.affine_math import HALF
from jq.ir import OPS, Program, at, dtype_of, ir, shape_of
from jq.ir.contract import Contract, match_contract
from jq.ir.markers import QUANTIZE_DYNAMIC, match
from jq.ir.ops.dims import Dims
from jq.kernels import Gemv, Scale, SplitRows, ZeroPoint
from jq.kernels.rowwise.row_chain import STEPS
from jq.passes.base import Pass, PassContext
from jq.passes.kernels._block_weight import BlockWeight
from jq.passes.kernels._kernel import KernelDecisions, NoKernel, call_kernel, isa_of
from jq.passes.kernels._tail import Tail

# Of a product of codes, by the bits of the weight, less that with a zero point.
_LARGEST = {bits: 2 * 128 << (bits - 1) for bits in range(2, 9)}


class KernelBlocks(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        isa, decided, splits = isa_of(cx.target), KernelDecisions(), Splits({})
        for op in [op for op in program.walk() if match_contract(op)] if isa else []:
            c = match_contract(op)  # now: an operand may have been replaced since
            if c is None or isa is None or not _applies(c):
                continue
            try:
                decided.kernel(_lower(program, c, isa, splits), c.name)
            except NoKernel as reason:
                decided.none(str(reason), c.name)
        return decided.write(program)


def _applies(c: Contract) -> bool:
    dims = Dims.of_contract(c)
    if dims is None or any(not isinstance(side, tuple) for side in c.sides):
        return False
    encodings = [side[0] for side in c.sides]
    blocks = any(e.grid[a] > 1 for i, e in enumerate(encodings) for a in dims.contracted(i))
    bits = affine_format(encodings[1].format).bits if is_affine(encodings[1].format) else 8
    return blocks or bits < 8


def _digits(enc: Encoding) -> int:
    """Number of int8 digits in a code of the activations."""
    if (get_format(enc.format).integer_bits or 16) <= 8:
        return 1
    low, high = affine_format(enc.format).limits(enc) if is_affine(enc.format) else (0, 1 << 31)
    if high > STEPS[2] or low < -STEPS[2] or enc.scheme != "symmetric":
        raise NoKernel(
            f"no kernel for {enc.format} activations with such weights, but for symmetric ones with"
            f" the divisor {HALF}"
        )
    return 2


@dataclass(frozen=True)
class Splits:
    """Activations that were split into digits, by what quantizes them: products share them."""

    done: dict[tuple[ir.Value, tuple[int, ...]], list[ir.Value]]

    def rows(
        self, program: Program, codes: ir.Value, kernel: Gemv, order: tuple[int, ...]
    ) -> list[ir.Value]:
        """Digits i8 [M, 2, K] of the codes that a marker makes, and scales f32 [M, blocks]."""
        marker = match(codes, QUANTIZE_DYNAMIC)
        if marker is None:
            raise NoKernel("codes of 16 bits have a kernel where their scales are found beside it")
        key = codes, order
        if key not in self.done:
            with at(marker.op):
                x = _moved(OPS.convert(marker.op.operands[0], np.float32), order)
                split = SplitRows(isa=kernel.isa, m=kernel.m, k=kernel.k, block=kernel.block)
                split = replace(split, digits=kernel.digits)
                self.done[key] = call_kernel(program, split, [x], f"{marker.tensor}/split")
        return self.done[key]


def _lower(program: Program, c: Contract, isa: str, splits: Splits) -> str:
    """Replaces the contraction and what follows it by a call; the kernel's name."""
    (x_enc, x), (w_enc, w) = c.sides
    dims = Dims.read(c.attributes["dot_dimension_numbers"])
    if dims.batch or len(dims.contract) != 1:
        raise NoKernel("the weight is not contracted along a single axis")
    digits = _digits(x_enc)
    if math.prod(c.shapes[0]) == 0 or math.prod(c.shapes[1]) == 0:
        raise NoKernel("an empty product")
    ((axis, other),) = dims.contract
    weight = BlockWeight.of(program, w_enc, w, [other], dims.free(1, len(w_enc.shape)), apart=True)
    k, n = weight.codes.shape
    blocks = x_enc.grid[axis]
    if blocks > 1 and x_enc.scheme == "asymmetric":
        raise NoKernel("no kernel for activations with zero points in blocks")
    if blocks > 1:
        weight = weight.cut(x_enc.block[axis])
    dtype = dtype_of(c.op.results[0])
    tail = Tail.behind(program, c.op, n) if dtype == np.float32 else Tail((), (), (c.op,))
    shifted, column = x_enc.scheme == "asymmetric", weight.scale
    if digits > 1 and blocks == 1:
        raise NoKernel(f"no kernel for {x_enc.format} activations without blocks")
    exact = blocks == 1 and weight.by_column and k * _LARGEST[weight.bits] < 1 << 24
    if exact:
        weight = replace(weight, scale=np.ones_like(np.asarray(column)))
    steps = (*(ZeroPoint(),) * shifted, *(Scale(),) * exact, *tail.steps)
    kernel = weight.kernel(isa, math.prod(c.shapes[0]) // k, blocks > 1, digits, steps)
    order = (*dims.free(0, len(c.shapes[0])), axis)
    with at(tail.last):
        wide = [blocks if a == axis else size for a, size in enumerate(c.shapes[0])]
        rows = get_format(x_enc.format).integers(OPS, x, x_enc)
        assert rows is not None
        if digits > 1:
            codes, by_row = splits.rows(program, x["codes"], kernel, order)
            wide, order = list(shape_of(by_row)), (0, 1)
        else:
            codes = _moved(rows.codes, order)
            by_row = OPS.broadcast(rows.scale, wide, range(len(wide)))
        if weight.factor != 1:
            factor = OPS.constant(np.asarray(weight.factor, np.float32))
            by_row = OPS.mul(by_row, OPS.broadcast(factor, wide, ()))
        one = OPS.broadcast(OPS.constant(np.ones((), np.float32)), wide, ())
        scale = one if exact else by_row
        operands = [codes, _moved(scale, order)]
        operands += weight.operands(program, c.name, kernel)
        if rows.zero_point is not None:
            sums = kernel.pad_columns(weight.column_sums())
            operands.append(program.add_weight(f"{c.name}:column_sum", sums))
            points = OPS.broadcast(OPS.convert(rows.zero_point, np.float32), wide, range(len(wide)))
            operands.append(_moved(OPS.mul(points, scale), order))
        if exact:
            numbers = kernel.pad_columns(np.asarray(column)[0].astype(np.float32))
            operands.append(program.add_weight(f"{c.name}:scales", numbers))
            operands.append(_moved(by_row, order))
        operands += tail.values(program, c.name, kernel.pad_columns)
        (result,) = call_kernel(program, kernel, operands, c.name)
        value = OPS.reshape(result, tail.shape)
        tail.replace(value if tail.steps else OPS.convert(value, dtype))
    return kernel.name


def _moved(value: ir.Value, order: tuple[int, ...]) -> ir.Value:
    moves = list(order) != sorted(order) and len(shape_of(value)) > 1
    return OPS.transpose(value, order) if moves else value
