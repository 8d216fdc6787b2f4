"""Products and broadcasts in the forms that IREE computes rightly."""

import numpy as np

from jq.ir import OPS, Op, dtype_of, i64_array, integers, ir, shape_of
from jq.ir.ops.dims import Dims
from jq.passes.iree_mends.mend import Mend
from jq.passes.iree_mends.shields.sums import is_outer

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
        return is_outer(op) and len({dtype_of(v) for v in [*op.operands, *op.results]}) > 1

    def rewritten(self, op: Op) -> list[ir.Value]:
        dims, result = Dims.of(op), op.results[0]
        operands = list(op.operands)
        shapes = [shape_of(v) for v in operands]
        wide = [OPS.convert(v, dtype_of(result)) for v in operands]
        return [OPS.mul(*(dims.spread(side, *shapes)(v) for side, v in enumerate(wide)))]


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
        op.operands[0] = OPS.transpose(op.operands[0], [int(i) for i in np.argsort(dims)])
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
    Trap: traps/test_values.py::test_infinities_by_truth_values"""

    def finds(self, op: Op) -> bool:
        kinds = {dtype_of(v).name for v in (*op.operands, *op.results)}
        return op.operation.name == "stablehlo.convert" and kinds - NUMBERS == {"bool"} != kinds

    def rewritten(self, op: Op) -> list[ir.Value]:
        x, kind = op.operands[0], dtype_of(op.results[0])
        if kind == np.bool_:
            return [OPS.compare(x, 0, "NE")]
        return [OPS.select(x, *(OPS.full(x, kind.type(n)) for n in (1, 0)))]
