"""The dimension numbers of a dot_general, products by them, and the operations that they take."""

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jq.ir import OPS, Op, Program, dtype_of, ir, shape_of, stablehlo, tensor_type
from jq.ir.build import like
from jq.ir.contract import Contract
from jq.ir.ops.base import Axes
from jq.ir.ops.integer import Spread

DOT_GENERAL = "dot_general"


@dataclass(frozen=True)
class Dims:
    """Dimension numbers as two lists of (lhs, rhs) axis pairs."""

    batch: tuple[tuple[int, int], ...]
    contract: tuple[tuple[int, int], ...]

    @staticmethod
    def of(op: Op) -> "Dims":
        return Dims.read(op.attributes["dot_dimension_numbers"])

    @staticmethod
    def match(op: Op) -> "Dims | None":
        """Those of a dot_general; None for any other op."""
        return Dims.of(op) if op.operation.name == f"stablehlo.{DOT_GENERAL}" else None

    @staticmethod
    def of_contract(c: Contract) -> "Dims | None":
        """Those of the dot_general that a `jq.contract` stands for; None for any other op's."""
        if c.op_type != DOT_GENERAL:
            return None
        return Dims.read(c.attributes["dot_dimension_numbers"])

    @staticmethod
    def read(attribute: ir.Attribute) -> "Dims":
        d = stablehlo.DotDimensionNumbers(attribute)
        return Dims(
            tuple(zip(d.lhs_batching_dimensions, d.rhs_batching_dimensions, strict=True)),
            tuple(zip(d.lhs_contracting_dimensions, d.rhs_contracting_dimensions, strict=True)),
        )

    def einsum(self, *ranks: int) -> str:
        """The product of operands of these ranks, as NumPy's `einsum` writes it."""
        letters = iter(string.ascii_lowercase)
        sides = [[""] * n for n in ranks]
        for i, j in (*self.batch, *self.contract):
            sides[0][i] = sides[1][j] = next(letters)
        out = [sides[0][i] for i, _ in self.batch]
        for side in sides:
            for i, letter in enumerate(side):
                if not letter:
                    side[i] = next(letters)
                    out.append(side[i])
        return f"{''.join(sides[0])},{''.join(sides[1])}->{''.join(out)}"

    def attribute(self) -> ir.Attribute:
        sides = ([p[i] for p in pairs] for pairs in (self.batch, self.contract) for i in (0, 1))
        return stablehlo.DotDimensionNumbers.get(*sides)

    def flipped(self) -> "Dims":
        """Those of the product with its operands in the other order."""
        return Dims(tuple((b, a) for a, b in self.batch), tuple((b, a) for a, b in self.contract))

    def map_side(self, side: int, axes: Sequence[int]) -> "Dims":
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
            flat = OPS.reshape(grid, [shape_of(grid)[axis] for axis in kept])
            return OPS.broadcast(flat, shape, [target[axis] for axis in kept])

        return apply


def dot(op: Op, lhs: ir.Value, rhs: ir.Value, dims: Dims, dtype: Any) -> ir.Value:
    """A dot_general with other operands, keeping the attributes that still mean something."""
    shape = dims.result_shape(shape_of(lhs), shape_of(rhs))
    says = {"dot_dimension_numbers": dims.attribute(), "precision_config": None}
    return like(op, [lhs, rhs], shape, dtype, **says)


def by_matrix(x: ir.Value, matrix: ir.Value) -> ir.Value:
    """x [..., K] times a matrix [K, N] of its type, at the current insertion point."""
    *rows, _ = shape_of(x)
    kind = tensor_type([*rows, shape_of(matrix)[1]], dtype_of(x))
    numbers = Dims((), ((len(rows), 0),)).attribute()
    return stablehlo.dot_general(kind, x, matrix, numbers)


DOT, CONVOLUTION = "stablehlo.dot_general", "stablehlo.convolution"


@dataclass(frozen=True)
class Work:
    """Operations of one call, two for a multiply-add; a loop's body counts once."""

    products: int
    convolutions: int

    @property
    def total(self) -> int:
        return self.products + self.convolutions


def work_of(program: Program) -> Work:
    """The operations of all products and convolutions of one call; a loop's body counts once."""
    totals = {DOT: 0, CONVOLUTION: 0}
    for op in program.walk():
        if op.operation.name in totals:
            totals[op.operation.name] += operations(op)
    return Work(totals[DOT], totals[CONVOLUTION])


def operations(op: Op) -> int:
    """Those of one product, two for a multiply-add."""
    lhs, rhs = (shape_of(v) for v in list(op.operands)[:2])
    if op.operation.name == DOT:
        depth = math.prod(lhs[a] for a, _ in Dims.of(op).contract)
    else:
        numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        depth = math.prod(rhs) // max(1, rhs[numbers.kernel_output_feature_dimension])
    return 2 * math.prod(shape_of(op.results[0])) * depth
