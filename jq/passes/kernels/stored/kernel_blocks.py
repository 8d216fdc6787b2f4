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

import math
from dataclasses import replace
from typing import Any

import numpy as np

from jq.formats import Encoding, affine_format, get_format, is_affine
from jq.formats.affine_math import HALF
from jq.formats.base import Integers
from jq.ir import OPS, Op, Program, at, dtype_of, integers, ir, maker, only_user, shape_of
from jq.ir.affine import constant_of
from jq.ir.contract import Contract, match_contract
from jq.ir.markers import QUANTIZE_DYNAMIC, match
from jq.ir.ops.dims import Dims
from jq.kernels import Gemv, QuantizeBlocks, Scale, SplitRows, ZeroPoint
from jq.kernels.rowwise.row_chain import STEPS
from jq.passes.base import Pass, PassContext
from jq.passes.kernels import _kernel
from jq.passes.kernels._kernel import KernelDecisions, NoKernel
from jq.passes.kernels._tail import Tail
from jq.passes.kernels.stored._block_weight import BlockWeight
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


def _digits(enc: Encoding) -> int:
    """Number of int8 digits in a code of the activations."""
    if (get_format(enc.format).integer_bits or 16) <= 8:
        return 1
    low, high = affine_format(enc.format).limits(enc) if is_affine(enc.format) else (0, 1 << 31)
    if high > STEPS[2] or low < -STEPS[2] or enc.scheme != "symmetric":
        others = f"but for symmetric ones with the divisor {HALF}"
        raise NoKernel(f"no kernel for {enc.format} activations with such weights, {others}")
    return 2


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
    (x_enc, x), (w_enc, w) = c.sides
    dims = Dims.read(c.attributes["dot_dimension_numbers"])
    if len(dims.contract) != 1:
        raise NoKernel("the weight is not contracted along a single axis")
    chosen, last = None, c.op
    if dims.batch:
        chosen, last, w_enc, w = _stack(program, c, w_enc, w)
    digits = _digits(x_enc)
    if math.prod(c.shapes[0]) == 0 or math.prod(c.shapes[1]) == 0:
        raise NoKernel("an empty product")
    ((axis, other),) = dims.contract
    columns = [*(b for _, b in dims.batch), *dims.free(1, len(w_enc.shape))]
    weight = BlockWeight.of(program, w_enc, w, [other], columns, apart=True)
    k, n = weight.codes.shape
    blocks = x_enc.grid[axis]
    if blocks > 1 and x_enc.scheme == "asymmetric":
        raise NoKernel("no kernel for activations with zero points in blocks")
    if blocks > 1:
        weight = weight.cut(x_enc.block[axis])
    if chosen is not None:
        if dims.batch != ((0, 0),) or blocks == 1:
            raise NoKernel("products with weights of a stack take activations in blocks")
        weight, n = weight.stacked(w_enc.shape[0]), n // w_enc.shape[0]
    dtype = dtype_of(c.op.results[0])
    tail = Tail.behind(program, last, n) if dtype == np.float32 else Tail((), (), (last,))
    shifted, column = x_enc.scheme == "asymmetric", weight.scale
    if digits > 1 and blocks == 1:
        raise NoKernel(f"no kernel for {x_enc.format} activations without blocks")
    largest = 2 * 128 << (weight.bits - 1)  # product of codes, less that with a zero point
    exact = blocks == 1 and weight.by_column and k * largest < 1 << 24
    if exact:
        weight = replace(weight, scale=np.ones_like(np.asarray(column)))
    steps = (*(ZeroPoint(),) * shifted, *(Scale(),) * exact, *tail.steps)
    kernel = weight.kernel(isa, math.prod(c.shapes[0]) // k, blocks > 1, digits, steps)
    if chosen is not None:
        kernel = replace(kernel, tiles=c.shapes[0][0])
    order = (*(a for a in range(len(c.shapes[0])) if a != axis), axis)
    with at(tail.last):
        wide = [blocks if a == axis else size for a, size in enumerate(c.shapes[0])]
        rows = _coded(program, x_enc, x, isa, splits)
        if digits > 1:
            codes, by_row = _in_digits(x["codes"], kernel, order, program, splits)
            wide, order = list(shape_of(by_row)), (0, 1)
        else:
            codes = _moved(rows.codes, order)
            by_row = OPS.broadcast(rows.scale, wide, range(len(wide)))
        if weight.factor != 1:
            by_row = OPS.mul(by_row, float(weight.factor))
        scale = OPS.full(by_row, 1) if exact else by_row
        operands = [codes, _moved(scale, order)]
        operands += (packed := weight.operands(program, c.name, kernel))
        operands += [] if chosen is None else [chosen]
        if rows.zero_point is not None:
            sums = kernel.pad_columns(weight.column_sums())
            operands.append(program.add_weight(f"{c.name}:column_sum", sums))
            points = OPS.broadcast(OPS.convert(rows.zero_point, np.float32), wide, range(len(wide)))
            operands.append(_moved(OPS.mul(points, scale), order))
        if exact:
            numbers = kernel.pad_columns(np.asarray(column)[0].astype(np.float32))
            packed.append(program.add_weight(f"{c.name}:scales", numbers))
            operands.append(packed[-1])
            operands.append(_moved(by_row, order))
        if [other, len(w_enc.shape), weight.factor] == [1, 2, 1] and readable(kernel):
            names = (program.weight_name(v) for name, v in w.items() if name != "sum")
            tables[frozenset(names)] = kernel, packed[0], packed[-1]
        operands += tail.values(program, c.name, kernel.pad_columns)
        (result,) = _kernel.call_kernel(program, kernel, operands, c.name)
        value = OPS.reshape(result, tail.shape)
        tail.replace(value if tail.steps else OPS.convert(value, dtype))
    if last is not c.op:
        c.op.operation.erase()
    return kernel.name


def _stack(
    program: Program, c: Contract, enc: Encoding, parts: dict[str, ir.Value]
) -> tuple[ir.Value, Any, Encoding, dict[str, ir.Value]]:
    """Numbers of the weights that a lookup takes from a stack, i32 [n]; the op of the result;
    encoding and parts of the stack. A result that is 0 where a mask says so takes no weight."""
    lookups = [op for op in (maker(v, "stablehlo.gather") for v in parts.values()) if op]
    if len(lookups) < len(parts) or len({op.operands[1] for op in lookups}) != 1:
        raise NoKernel("each index of a batch has a weight of its own")
    whole = {name: op.operands[0] for name, op in zip(parts, lookups, strict=True)}
    count = shape_of(whole[min(whole)])[0]
    stack, user = enc.with_shape((count, *enc.shape[1:]), enc.block), only_user(c.op.results[0])
    mask = None if user is None else _mask(program, c, user)
    last = c.op if mask is None or user is None else user
    with at(last):
        chosen = OPS.reshape(OPS.convert(lookups[0].operands[1], np.int32), enc.shape[:1])
        if mask is not None:
            mask = OPS.reshape(mask, enc.shape[:1])
            chosen = OPS.select(mask, chosen, count)
    return chosen, last, stack, whole


def _mask(program: Program, c: Contract, user: Op) -> ir.Value | None:
    """The i1 of n elements in `select(broadcast(mask), product, 0)`; None for anything else."""
    if user.operation.name != "stablehlo.select" or user.operands[1] != c.op.results[0]:
        return None
    other, mask = constant_of(program, user.operands[2]), user.operands[0]
    count = shape_of(mask)[0]
    if other is None or other.any():
        return None
    while shape_of(mask)[:1] == (count,) and math.prod(shape_of(mask)) != count:
        op = maker(mask, "stablehlo.broadcast_in_dim")
        if op is None or list(integers(op, "broadcast_dimensions"))[:1] != [0]:
            return None
        mask = op.operands[0]
    return mask if math.prod(shape_of(mask)) == count else None


def _moved(value: ir.Value, order: tuple[int, ...]) -> ir.Value:
    moves = list(order) != sorted(order) and len(shape_of(value)) > 1
    return OPS.transpose(value, order) if moves else value
