"""Rule of dot_general on integer codes, for all batching and contracting dimensions.

    dot(dequantize(a), dequantize(b))
    -> convert(dot(a.codes, b.codes) - corrections) * (a.scale * b.scale)

Blocks along the contracted axis become a batch dimension, and their scaled products are
summed in float. With one float operand the codes are converted and scaled after the product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import Op, Program, dtype_of, ir, shape_of, stablehlo, tensor_type
from jq.ir.build import NAME, like, reduce_sum, string_attr
from jq.ir.contract import Contract
from jq.ir.markers import Marker
from jq.ops.base import Axes, Contraction, QuantizedOperand, Role, codes_of
from jq.ops.geometry import Geometry
from jq.ops.integer import OPS, Spread, accumulator, correct, real_sums, rescale

PLAIN = "jq.plain"  # attribute of a product that is none of the model's: it stays as it is


@dataclass(frozen=True)
class Dims:
    """Dimension numbers as two lists of (lhs, rhs) axis pairs."""

    batch: tuple[tuple[int, int], ...]
    contract: tuple[tuple[int, int], ...]

    @staticmethod
    def of(op: Op) -> Dims:
        return Dims.read(op.operation.attributes["dot_dimension_numbers"])

    @staticmethod
    def match(op: Op) -> Dims | None:
        """Those of a dot_general; None for any other op."""
        return Dims.of(op) if op.operation.name == f"stablehlo.{DotGeneral.op}" else None

    @staticmethod
    def of_contract(c: Contract) -> Dims | None:
        """Those of the dot_general that a `jq.contract` stands for; None for any other op's."""
        if c.op_type != DotGeneral.op:
            return None
        return Dims.read(c.attributes["dot_dimension_numbers"])

    @staticmethod
    def read(attribute: ir.Attribute) -> Dims:
        d = stablehlo.DotDimensionNumbers(attribute)
        return Dims(
            tuple(zip(d.lhs_batching_dimensions, d.rhs_batching_dimensions, strict=True)),
            tuple(zip(d.lhs_contracting_dimensions, d.rhs_contracting_dimensions, strict=True)),
        )

    def attribute(self) -> ir.Attribute:
        lhs_batch, rhs_batch = zip(*self.batch, strict=True) if self.batch else ((), ())
        lhs, rhs = zip(*self.contract, strict=True) if self.contract else ((), ())
        return stablehlo.DotDimensionNumbers.get(
            lhs_batching_dimensions=list(lhs_batch),
            rhs_batching_dimensions=list(rhs_batch),
            lhs_contracting_dimensions=list(lhs),
            rhs_contracting_dimensions=list(rhs),
        )

    def flipped(self) -> Dims:
        """Those of the product with its operands in the other order."""
        return Dims(tuple((b, a) for a, b in self.batch), tuple((b, a) for a, b in self.contract))

    def map_side(self, side: int, axes: Sequence[int]) -> Dims:
        """The same numbers with axis i of one operand called `axes[i]`."""

        def move(pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
            return tuple((axes[a], b) if side == 0 else (a, axes[b]) for a, b in pairs)

        return Dims(move(self.batch), move(self.contract))

    def contracted(self, side: int) -> Axes:
        return frozenset(pair[side] for pair in self.contract)

    def free(self, side: int, rank: int) -> list[int]:
        used = {pair[side] for pair in self.batch + self.contract}
        return [axis for axis in range(rank) if axis not in used]

    def result_shape(self, lhs: Sequence[int], rhs: Sequence[int]) -> list[int]:
        return (
            [lhs[a] for a, _ in self.batch]
            + [lhs[a] for a in self.free(0, len(lhs))]
            + [rhs[a] for a in self.free(1, len(rhs))]
        )

    def result_axes(self, side: int, lhs: Sequence[int], rhs: Sequence[int]) -> dict[int, int]:
        """Axes of one operand that are not summed over -> axes of the result."""
        target = {pair[side]: i for i, pair in enumerate(self.batch)}
        first = len(self.batch) + (len(self.free(0, len(lhs))) if side else 0)
        free = self.free(side, len((lhs, rhs)[side]))
        return target | {axis: first + i for i, axis in enumerate(free)}

    def spread(self, side: int, lhs: Sequence[int], rhs: Sequence[int]) -> Spread:
        """Takes a grid of one operand (contracted axes of size 1) to the shape of the result."""
        target = self.result_axes(side, lhs, rhs)
        shape, kept = self.result_shape(lhs, rhs), sorted(target)

        def apply(grid: ir.Value) -> ir.Value:
            sizes = [shape_of(grid)[axis] for axis in kept]
            flat = OPS.reshape(grid, sizes)
            return OPS.broadcast(flat, shape, [target[axis] for axis in kept])

        return apply


def dot(op: Op, lhs: ir.Value, rhs: ir.Value, dims: Dims, dtype: Any) -> ir.Value:
    """A dot_general with other operands, keeping the attributes that still mean something."""
    return like(
        op,
        [lhs, rhs],
        dims.result_shape(shape_of(lhs), shape_of(rhs)),
        dtype,
        dot_dimension_numbers=dims.attribute(),
        precision_config=None,
        algorithm=None,
    )


def by_matrix(x: ir.Value, matrix: ir.Value) -> ir.Value:
    """x [..., K] times a matrix [K, N] of its type, at the current insertion point."""
    *rows, _ = shape_of(x)
    kind = tensor_type([*rows, shape_of(matrix)[1]], dtype_of(x))
    numbers = Dims((), ((len(rows), 0),)).attribute()
    return stablehlo.dot_general(kind, x, matrix, numbers)


class DotGeneral(Contraction):
    op = "dot_general"
    splits_blocks = True

    def applies(self, op: Op) -> bool:
        return PLAIN not in op.operation.attributes

    def geometry(self, op: Op) -> Geometry:
        dims, (lhs, rhs) = Dims.of(op), (shape_of(x) for x in op.operation.operands)
        depth = math.prod(lhs[a] for a, _ in dims.contract)
        width = math.prod(rhs[a] for a in dims.free(1, len(rhs)))
        batch = math.prod(lhs[a] for a, _ in dims.batch)
        return Geometry(channels=(depth, width), batch=batch)

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
            total = reduce_sum(partial, range(blocks)) if blocks else partial
            return OPS.convert(total, dtype_of(op.results[0]))
        return _scaled_after(op, lhs, rhs, dims) if all(whole) else None

    def accumulate(self, op: Op, lhs: QuantizedOperand, rhs: QuantizedOperand) -> ir.Value | None:
        dims = Dims.of(op)
        whole = [c.constant_along(dims.contracted(i)) for i, c in enumerate((lhs, rhs))]
        if not all(whole) or lhs.offset is not None or rhs.offset is not None:
            return None
        return _accumulate(op, lhs, rhs, dims)[0]


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
    weight = OPS.convert(codes.codes, compute)
    if codes.zero_point is not None:
        zero = OPS.convert(codes.zero_point, compute)
        rank = len(shape_of(weight))
        weight = OPS.sub(weight, OPS.broadcast(zero, shape_of(weight), range(rank)))
    operands = [OPS.convert(op.operands[0], compute), OPS.convert(op.operands[1], compute)]
    operands[side] = weight
    acc = dot(op, operands[0], operands[1], dims, np.float32)
    spread = dims.spread(side, shape_of(operands[0]), shape_of(operands[1]))
    return OPS.convert(OPS.mul(acc, spread(codes.scale)), dtype_of(op.results[0]))


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
    grid = (blocks, *(1 if i == axis else n for i, n in enumerate(x.grid)))
    codes, scale = move(x.codes, grid=False), move(x.scale, grid=True)
    assert codes is not None and scale is not None
    return QuantizedOperand(
        codes=codes,
        scale=scale,
        zero_point=move(x.zero_point, grid=True),
        offset=move(x.offset, grid=True),
        sum=None if whole else move(x.sum, grid=True),
        grid=grid,
        block=(1, *x.block),
    )
