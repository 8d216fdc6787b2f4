"""Products of codes with weights in blocks of the contracted axis, or of fewer than 8 bits.

    composite "jq.contract" %x.codes, %x.scale, %w.codes, %w.scale   (dot_general)
    [add bias] [activation] [add residual]
    ->
    call @jq_gemv(%x.codes, %x.scale, %w.packed, ...)

Without the kernel every block is a product of its own, whose sums lie in memory, and codes of 4
bits take a byte each. Fires on integer weights and on ggml's types, with activations of one scale a
row or one a block; also on weights with one scale a column, where the activations have blocks.
Activations of int16 in blocks whose codes are two int8 digits (divisor `absmax/63`) are multiplied
a digit after the other, with weights that are read once. What zero points of rows add is taken off
after the product: `y - zero[row] * sum[column]`. With one scale a column all of that is in whole
numbers that float32 holds, scaled last: the bits of the `integer` level. With blocks the result
differs from it by the order of a float32 sum of blocks, and by the rounding of that product."""

from dataclasses import replace

import numpy as np

from jq.formats import Encoding, affine_format, get_format, is_affine
from jq.formats.base import Integers
from jq.ir import OPS, Program, at, ir, shape_of
from jq.ir.contract import Contract, match_contract
from jq.ir.markers import QUANTIZE_DYNAMIC, match
from jq.ir.ops.dims import Dims
from jq.kernels import Gemv, QuantizeBlocks, SplitRows
from jq.passes.base import Pass, PassContext
from jq.passes.kernels import _kernel
from jq.passes.kernels._kernel import KernelDecisions, NoKernel
from jq.passes.kernels.stored._block_product import BlockProduct
from jq.passes.kernels.stored._lookups import Key, Packed, readable, share

# Activations in digits, by what quantizes them: products share them.
Splits = dict[tuple[ir.Value, tuple[int, ...]], list[ir.Value]]


class KernelBlocks(Pass):
    def run(self, program: Program, cx: PassContext) -> bool:
        isa, decided = _kernel.isa_of(cx.target), KernelDecisions()
        splits, packed = Splits(), dict[Key, Packed]()
        for op in [op for op in program.walk() if match_contract(op)] if isa else []:
            c = match_contract(op)  # now: an operand may have been replaced since
            if c is None or isa is None or not _applies(c):
                continue
            try:
                decided.kernel(_lower(program, c, isa, splits, packed), c.name)
            except NoKernel as reason:
                decided.none(str(reason), c.name)
        share(program, packed)
        return decided.write(program)


def _applies(c: Contract) -> bool:
    dims = Dims.of_contract(c)
    if dims is None or any(not isinstance(side, tuple) for side in c.sides):
        return False
    encodings = [side[0] for side in c.sides]
    blocks = any(e.grid[a] > 1 for i, e in enumerate(encodings) for a in dims.contracted(i))
    bits = affine_format(encodings[1].format).bits if is_affine(encodings[1].format) else 0
    return blocks or bits < 8


def _in_digits(
    codes: ir.Value, kernel: Gemv, order: tuple[int, ...], program: Program, splits: Splits
) -> list[ir.Value]:
    """Digits i8 [M, 2, K] of the codes that a marker makes, and scales f32 [M, blocks]."""
    marker, key = match(codes, QUANTIZE_DYNAMIC), (codes, order)
    if marker is None:
        raise NoKernel("codes of 16 bits have a kernel where their scales are found beside it")
    if key not in splits:
        with at(marker.op):
            x = _moved(OPS.convert(marker.op.operands[0], np.float32), order)
            split = SplitRows(isa=kernel.isa, m=kernel.m, k=kernel.k, block=kernel.block)
            split = replace(split, digits=kernel.digits)
            splits[key] = _kernel.call_kernel(program, split, [x], f"{marker.tensor}/split")
    return splits[key]


def _coded(
    program: Program, enc: Encoding, x: dict[str, ir.Value], isa: str, splits: Splits
) -> Integers:
    """The activations as integers: where the data themselves say how, from the kernel that
    quantizes to the format."""
    marker, key = match(x["codes"], QUANTIZE_DYNAMIC), (x["codes"], ())
    kernel = QuantizeBlocks.of(isa, marker.encoding, coded=True) if marker else None
    if marker is None or kernel is None:
        rows = get_format(enc.format).integers(OPS, x, enc)
        assert rows is not None
        return rows
    if key not in splits:
        with at(marker.op):
            splits[key] = _kernel.quantize_blocks(program, kernel, marker)
    codes, scale = (
        OPS.reshape(v, shape) for v, shape in zip(splits[key], (enc.shape, enc.grid), strict=True)
    )
    return Integers(codes, scale, None, None, enc.block)


def _lower(
    program: Program, c: Contract, isa: str, splits: Splits, tables: dict[Key, Packed]
) -> str:
    """Replaces the contraction and what follows it by a call; the kernel's name."""
    product = BlockProduct.of(program, c, isa)
    kernel, tail = product.kernel, product.tail
    with at(tail.last):
        operands = _operands(program, c, product, splits, tables)
        tail.lower(program, c.name, kernel, operands, OPS.reshape)
    if tail.ops[0] is not c.op:
        c.op.operation.erase()
    return kernel.name


def _operands(
    program: Program, c: Contract, product: BlockProduct, splits: Splits, tables: dict[Key, Packed]
) -> list[ir.Value]:
    """The operands of the kernel, but for those of its tail."""
    (enc, x), (_, w) = c.sides
    kernel, weight, axis = product.kernel, product.weight, product.axis
    order = (*(a for a in range(len(enc.shape)) if a != axis), axis)
    wide = [product.blocks if a == axis else size for a, size in enumerate(enc.shape)]
    rows = _coded(program, enc, x, kernel.isa, splits)
    if kernel.digits > 1:
        codes, by_row = _in_digits(x["codes"], kernel, order, program, splits)
        wide, order = list(shape_of(by_row)), (0, 1)
    else:
        codes = _moved(rows.codes, order)
        by_row = OPS.broadcast(rows.scale, wide, range(len(wide)))
    if weight.factor != 1:
        by_row = OPS.mul(by_row, float(weight.factor))
    scale = by_row if product.factors is None else OPS.full(by_row, 1)
    packed = weight.operands(program, c.name, kernel)
    operands = [codes, _moved(scale, order), *packed]
    operands += [] if product.chosen is None else [product.chosen]
    if rows.zero_point is not None:
        sums = kernel.pad_columns(weight.column_sums())
        operands.append(program.add_weight(f"{c.name}:column_sum", sums))
        points = OPS.broadcast(OPS.convert(rows.zero_point, np.float32), wide, range(len(wide)))
        operands.append(_moved(OPS.mul(points, scale), order))
    if product.factors is not None:
        numbers = kernel.pad_columns(product.factors[0].astype(np.float32))
        packed.append(program.add_weight(f"{c.name}:scales", numbers))
        operands += [packed[-1], _moved(by_row, order)]
    if [product.other, len(c.shapes[1]), weight.factor] == [1, 2, 1] and readable(kernel):
        names = (program.weight_name(v) for name, v in w.items() if name != "sum")
        tables[frozenset(names)] = kernel, packed[0], packed[-1]
    return operands


def _moved(value: ir.Value, order: tuple[int, ...]) -> ir.Value:
    moves = list(order) != sorted(order) and len(shape_of(value)) > 1
    return OPS.transpose(value, order) if moves else value
