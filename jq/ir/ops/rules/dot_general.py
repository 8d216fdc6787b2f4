"""Product of quantized values, for all batching and contracting dimensions.

    dot(dequantize(a), dequantize(b))
    -> convert(dot(a.codes, b.codes) - corrections) * (a.scale * b.scale)

Blocks along the contracted axis become a batch dimension, and their scaled products are summed in
float. With one float operand the codes are converted and scaled after the product."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jq.ir import NAME, OPS, Op, Program, dtype_of, ir, shape_of, string_attr
from jq.ir.markers import Marker
from jq.ir.ops.base import Contraction, QuantizedOperand, Role, codes_of
from jq.ir.ops.dims import DOT_GENERAL, Dims, dot
from jq.ir.ops.geometry import Geometry, Matrices, NotMatrices, WeightProduct
from jq.ir.ops.integer import Spread, accumulator, centred, correct, real_sums, rescale

PLAIN = "jq.plain"  # attribute of a product that is none of the model's: it stays as it is


class DotGeneral(Contraction):
    op = DOT_GENERAL
    sums_products = True
    splits_blocks = True
    any_order = True

    def applies(self, op: Op) -> bool:
        return PLAIN not in op.attributes

    def geometry(self, op: Op) -> Geometry:
        dims, (lhs, rhs) = Dims.of(op), (shape_of(x) for x in op.operands)
        depth = math.prod(lhs[a] for a, _ in dims.contract)
        width = math.prod(rhs[a] for a in dims.free(1, len(rhs)))
        return Geometry(channels=(depth, width), batch=math.prod(lhs[a] for a, _ in dims.batch))

    def roles(self, op: Op) -> tuple[Role, ...]:
        found = []
        for side in (0, 1):
            axes = Dims.of(op).contracted(side)
            last = max(axes, default=None)
            found.append(Role(side, axes, last, axes - {last}))
        return tuple(found)

    def terms(self, op: Op) -> int:
        shape = shape_of(op.operands[0])
        return math.prod(shape[a] for a in Dims.of(op).contracted(0))

    def result_axes(self, op: Op, index: int) -> dict[int, int]:
        lhs, rhs = (shape_of(v) for v in op.operands)
        return Dims.of(op).result_axes(index, lhs, rhs)

    def lower(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        lhs, rhs = (codes_of(m) for m in markers)
        dims, name = Dims.of(op), string_attr(op, NAME) or "dot"
        sides = [c for c in (lhs, rhs) if c is not None]
        whole = [
            c is None or c.constant_along(dims.contracted(side))
            for side, c in enumerate((lhs, rhs))
        ]
        if not sides:
            return None
        if lhs is not None and rhs is not None:
            if not all(whole):
                split = _split_blocks(lhs, rhs, dims)
                if split is None:
                    return None
                lhs, rhs, dims = split
            blocks = len(dims.batch) - len(Dims.of(op).batch)
            partial = _integer(program, op, lhs, rhs, dims, name)
            total = OPS.reduce_sum(partial, range(blocks), keep=False)
            return OPS.convert(total, dtype_of(op.results[0]))
        return _scaled_after(op, lhs, rhs, dims) if all(whole) else None

    def sum_of_products(self, op: Op, lhs: QuantizedOperand, rhs: QuantizedOperand) -> ir.Value:
        return _accumulate(op, lhs, rhs, Dims.of(op))[0]

    def summed_with(self, op: Op, index: int) -> dict[int, int]:
        return {pair[index]: pair[1 - index] for pair in Dims.of(op).contract}

    def linear_axes(self, op: Op, index: int) -> dict[int, int]:
        shapes = [shape_of(v) for v in op.operands]
        free = Dims.of(op).free(index, len(shapes[index]))
        axes = Dims.of(op).result_axes(index, *shapes)
        return {own: axes[own] for own in free}

    def details(self, op: Op) -> dict[str, Any]:
        """The product as `einsum` writes it."""
        return {"einsum": Dims.of(op).einsum(*[len(shape_of(v)) for v in op.operands])}

    def matrices(self, product: WeightProduct) -> Matrices:
        p, dims = product, Dims.read(product.attributes["dot_dimension_numbers"])
        if dims.batch:
            raise NotMatrices("a weight for each index of a batch has no decoding kernel")
        if not dims.contract:
            raise NotMatrices("an outer product")
        shape = shape_of(p.x)
        partner = {pair[p.side]: pair[1 - p.side] for pair in dims.contract}
        enc = p.weight
        # The one that is cut into blocks after the others.
        contracted = sorted(partner, key=lambda a: (enc.block[a] > 1 and enc.grid[a] > 1, a))
        kept = dims.free(1 - p.side, len(shape))
        x = OPS.transpose(OPS.convert(p.x, np.float32), [*kept, *(partner[a] for a in contracted)])
        count = math.prod(shape[a] for a in kept)
        rows = OPS.reshape(x, [count, math.prod(shape) // count])
        free = dims.free(p.side, len(p.weight.shape))
        sizes = [shape[a] for a in kept], [p.weight.shape[a] for a in free]

        def result(value: ir.Value) -> ir.Value:
            """The axes of the left operand come first."""
            value = OPS.reshape(value, [*sizes[0], *sizes[1]])
            first, rank = len(sizes[0]), len(sizes[0]) + len(sizes[1])
            turned = [*range(first, rank), *range(first)]
            return value if p.side == 1 else OPS.transpose(value, turned)

        return Matrices(free, contracted, rows, result)


def _integer(
    program: Program, op: Op, lhs: QuantizedOperand, rhs: QuantizedOperand, dims: Dims, name: str
) -> ir.Value:
    contracted = dims.contracted(0), dims.contracted(1)
    acc, spread = _accumulate(op, lhs, rhs, dims)
    result = rescale(program, acc, (lhs.scale, rhs.scale), spread, name)
    for side, x, other in ((0, lhs, rhs), (1, rhs, lhs)):
        if x.offset is not None:
            total = real_sums(other, contracted[1 - side])
            offset = OPS.mul(spread[1 - side](total), spread[side](x.offset))
            result = OPS.add(result, offset)
    return result


def _accumulate(
    op: Op, lhs: QuantizedOperand, rhs: QuantizedOperand, dims: Dims
) -> tuple[ir.Value, tuple[Spread, Spread]]:
    """sum((a - za) * (b - zb)), and how a grid of either operand spreads over it."""
    shapes = shape_of(lhs.codes), shape_of(rhs.codes)
    contracted = dims.contracted(0), dims.contracted(1)
    spread = dims.spread(0, *shapes), dims.spread(1, *shapes)
    terms = math.prod(shapes[0][a] for a in contracted[0])
    acc = dot(op, lhs.codes, rhs.codes, dims, accumulator(lhs, rhs))
    return correct(acc, lhs, rhs, contracted, terms, spread), spread


def _scaled_after(
    op: Op, lhs: QuantizedOperand | None, rhs: QuantizedOperand | None, dims: Dims
) -> ir.Value | None:
    """One float operand: dot(x, float(codes - zero_point)) * scale."""
    side = 0 if lhs is not None else 1
    codes = lhs if lhs is not None else rhs
    assert codes is not None
    if codes.offset is not None:
        return None
    dtype = dtype_of(op.operands[1 - side])
    narrow = dtype.itemsize == 2 and dtype_of(codes.codes).itemsize > 1
    compute = np.dtype(np.float32) if narrow else dtype  # bf16 holds every 8-bit code exactly
    first, second = centred(codes, compute), OPS.convert(op.operands[1 - side], compute)
    operands = (first, second) if side == 0 else (second, first)
    wide = dtype if dtype.itemsize > 4 else np.dtype(np.float32)
    acc, spread = dot(op, *operands, dims, wide), dims.spread(side, *map(shape_of, operands))
    scaled = OPS.mul(acc, OPS.convert(spread(codes.scale), wide))
    return OPS.convert(scaled, dtype_of(op.results[0]))


def _split_blocks(
    lhs: QuantizedOperand, rhs: QuantizedOperand, dims: Dims
) -> tuple[QuantizedOperand, QuantizedOperand, Dims] | None:
    """Blocks along contracted axes become leading batch dimensions of both operands."""
    blocked = [i for i, (a, b) in enumerate(dims.contract) if max(lhs.grid[a], rhs.grid[b]) > 1]
    for i in blocked:
        a, b = dims.contract[i]
        sizes = {c.block[axis] for c, axis in ((lhs, a), (rhs, b)) if c.grid[axis] > 1}
        length, size = shape_of(lhs.codes)[a], min(sizes)
        if length % size or any(n % size for n in sizes):
            return None
        lhs, rhs = _split_axis(lhs, a, length // size), _split_axis(rhs, b, length // size)
        dims = Dims(
            ((0, 0), *((x + 1, y + 1) for x, y in dims.batch)),
            tuple((x + 1, y + 1) for x, y in dims.contract),
        )
    return (lhs, rhs, dims) if blocked else None


def _split_axis(x: QuantizedOperand, axis: int, blocks: int) -> QuantizedOperand:
    """[.., K, ..] -> [blocks, .., K/blocks, ..] for codes, scale, zero point and sum; what is
    given for larger blocks is repeated."""

    def move(v: ir.Value | None, *, grid: bool) -> ir.Value | None:
        if v is None:
            return None
        shape = list(shape_of(v))
        if grid and shape[axis] == 1:
            return OPS.broadcast(v, [blocks, *shape], range(1, len(shape) + 1))
        if grid and shape[axis] < blocks:
            repeated = [*shape[: axis + 1], blocks // shape[axis], *shape[axis + 1 :]]
            kept = [i for i in range(len(repeated)) if i != axis + 1]
            v = OPS.broadcast(v, repeated, kept)
            shape = [*shape[:axis], blocks, *shape[axis + 1 :]]
            v = OPS.reshape(v, shape)
        split = [*shape[:axis], blocks, shape[axis] // blocks, *shape[axis + 1 :]]
        order = [axis, *(i for i in range(len(split)) if i != axis)]
        return OPS.transpose(OPS.reshape(v, split), order)

    # The sum over a larger block says nothing about those of its parts.
    whole = x.grid[axis] < blocks
    codes, scale = move(x.codes, grid=False), move(x.scale, grid=True)
    assert codes is not None and scale is not None
    return QuantizedOperand(
        codes=codes,
        scale=scale,
        zero_point=move(x.zero_point, grid=True),
        offset=move(x.offset, grid=True),
        sum=None if whole else move(x.sum, grid=True),
        block=(1, *x.block),
    )
