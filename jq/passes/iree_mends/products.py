"""Products and broadcasts in the forms that IREE computes rightly."""

import math

import numpy as np

from jq.ir import OPS, Op, Program, dtype_of, evaluate, ir, shape_of
from jq.ir.build import i64_array, integers
from jq.ir.ops.dims import Dims
from jq.passes.base import PassContext
from jq.passes.iree_mends.mend import Mend
from jq.passes.iree_mends.shields.sums import is_outer
from jq.passes.rewrite import Rewrite

# Products that sum over nothing and widen are written as multiplications.
#
#     dot_general(%x : 3x5x1xi8, %w : 1x8xi8) -> 3x5x8xi32, contracting a dimension of size 1
#     ->
#     multiply(broadcast (convert %x), broadcast (convert %w))
#
# IREE does the same itself.


class MultiplyOuter(Mend):
    """A product that sums over an axis of size 1 loses its conversion to a wider type if its
    operand has another reader, or the compiler crashes.
    Trap: traps/test_contractions.py::test_outer_product"""

    def finds(self, op: Op) -> bool:
        """True if an op is a product with one term, of another type than an operand."""
        values = [*op.operands, *op.results]
        return is_outer(op) and len({dtype_of(v) for v in values}) > 1

    def rewritten(self, op: Op) -> list[ir.Value]:
        dims, result = Dims.of(op), op.results[0]
        operands = list(op.operands)
        shapes = [shape_of(v) for v in operands]
        wide = [OPS.convert(v, dtype_of(result)) for v in operands]
        return [OPS.mul(*(dims.spread(side, *shapes)(v) for side, v in enumerate(wide)))]


# Products of a few rows with a tensor that lies in another order are written as sums of products.
#
#     dot_general %q[h,g,d], %keys[t,h,d], batching_dims = [0] x [1], contracting_dims = [2] x [2]
#     ->
#     transpose (reduce_sum (broadcast %q * broadcast %keys) over d)
#
# as a decoder's token meets its caches, where g heads may share one. Float32 alone; the sum may
# have another order.
SMALLEST = 1 << 12  # elements that are worth it
ROWS = 8  # more are cheaper as a product, the copy included


class SumProducts(Rewrite, Mend):
    """Slow: in front of a batched product of a few rows the other operand is copied into another
    order; a sum reads it as it lies.
    No trap: slow, not wrong"""

    tidies = False

    def replacement(self, program: Program, op: Op, cx: PassContext) -> list[ir.Value] | None:
        dims = Dims.match(op)
        side = _large_side(program, op, dims) if dims else None
        return None if dims is None or side is None else [_sum(op, dims, side)]


def _large_side(program: Program, op: Op, dims: Dims) -> int | None:
    """The operand that a copy would be made of; the other one has few rows for each batch."""
    values = list(op.operands)
    float32 = all(dtype_of(v) == np.float32 for v in (*values, op.results[0]))
    if not float32 or not dims.batch or not dims.contract:
        return None
    for side, large in enumerate(values):
        shape, other = shape_of(large), shape_of(values[1 - side])
        rows = math.prod(other[a] for a in dims.free(1 - side, len(other)))
        leading = sorted(pair[side] for pair in dims.batch) == list(range(len(dims.batch)))
        if rows <= ROWS and not leading and math.prod(shape) >= SMALLEST:
            return None if evaluate(program, large) is not None else side
    return None


def _sum(op: Op, dims: Dims, side: int) -> ir.Value:
    """The product as a sum, with the rows as one axis right after the last one of the batch."""
    large, row = op.operands[side], op.operands[1 - side]
    shape, small = shape_of(large), shape_of(row)
    free = dims.free(1 - side, len(small))
    at_rows = max(pair[side] for pair in dims.batch) + 1
    wide = [*shape[:at_rows], math.prod(small[a] for a in free), *shape[at_rows:]]

    def place(axis: int) -> int:
        return axis + (axis >= at_rows)

    of = {pair[1 - side]: place(pair[side]) for pair in (*dims.batch, *dims.contract)}
    order = sorted(of, key=lambda a: of[a])
    behind = [a for a in order if of[a] > at_rows]
    moved = [*(a for a in order if of[a] < at_rows), *free, *behind]
    flat = OPS.reshape(
        OPS.transpose(row, moved),
        [*(small[a] for a in order if of[a] < at_rows), wide[at_rows], *(small[a] for a in behind)],
    )
    x = OPS.broadcast(flat, wide, sorted([*of.values(), at_rows]))
    y = OPS.broadcast(large, wide, [place(a) for a in range(len(shape))])
    contracted = sorted(place(a) for a in dims.contracted(side))
    total = OPS.reduce_sum(OPS.mul(y, x), contracted, keep=False)
    left = [a for a in range(len(wide)) if a not in contracted]
    others = [place(a) for a in dims.free(side, len(shape))]
    inner = [at_rows, *others] if side == 1 else [*others, at_rows]
    wanted = [*(place(pair[side]) for pair in dims.batch), *inner]
    total = OPS.transpose(total, [left.index(a) for a in wanted])
    return OPS.reshape(total, shape_of(op.results[0]))


# A broadcast that permutes becomes a transpose and a broadcast that keeps the order.
#
# broadcast_in_dim %x, dims = [1, 2, 0]
# ->
# broadcast_in_dim (transpose %x, dims = [2, 0, 1]), dims = [0, 1, 2]
DIMS = "broadcast_dimensions"


class OrderBroadcasts(Mend):
    """A broadcast that permutes axes, and adds no elements, becomes the inverse permutation.
    Trap: traps/test_values.py::test_permuting_broadcast"""

    def finds(self, op: Op) -> bool:
        dims = integers(op, DIMS)
        return op.operation.name == "stablehlo.broadcast_in_dim" and list(dims) != sorted(dims)

    def rewritten(self, op: Op) -> None:
        dims = integers(op, DIMS)
        order = [int(i) for i in np.argsort(dims)]
        op.operands[0] = OPS.transpose(op.operands[0], order)
        op.attributes[DIMS] = i64_array(sorted(dims))


# Conversions from and to truth values are written as a choice and a comparison.
#
#     convert %b : (i1) -> f32  ->  select %b, 1, 0
#     convert %x : (f32) -> i1  ->  compare NE %x, 0
#
# IREE takes a conversion into the product that reads it. A program that is refused is compiled
# without packing (a product in a quarter of the speed).
NUMBERS = {f"{t}{n}" for t in ("int", "float") for n in (8, 16, 32, 64)} | {"bfloat16"}


class PlainBooleans(Mend):
    """A product with an operand that is converted from truth values is refused where products are
    packed.
    Trap: iree/test_iree_defects.py::test_products_of_truth_values_are_packed

    A multiplication by numbers that are converted from truth values becomes a choice, which makes 0
    of infinities and NaNs, and is refused in some programs where truth values are gathered.
    Trap: traps/test_values.py::test_infinities_by_truth_values
    """

    def finds(self, op: Op) -> bool:
        kinds = {dtype_of(v).name for v in (*op.operands, *op.results)}
        return op.operation.name == "stablehlo.convert" and kinds - NUMBERS == {"bool"} != kinds

    def rewritten(self, op: Op) -> list[ir.Value]:
        x, kind = op.operands[0], dtype_of(op.results[0])
        if kind == np.bool_:
            return [OPS.compare(x, 0, "NE")]
        return [OPS.select(x, *(OPS.full(x, kind.type(n)) for n in (1, 0)))]
