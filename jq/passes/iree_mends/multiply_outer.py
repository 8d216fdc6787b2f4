"""Products that sum over nothing and widen are written as multiplications.

    dot_general(%x : 3x5x1xi8, %w : 1x8xi8) -> 3x5x8xi32, contracting a dimension of size 1
    ->
    multiply(broadcast (convert %x), broadcast (convert %w))

IREE does the same itself.
"""

from dataclasses import dataclass

from jq.ir import Op, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.ops.dims import Dims
from jq.passes.iree_mends.mend import Mend

OPS = StableHloOps()


@dataclass(frozen=True)
class MultiplyOuter(Mend):
    """A product that sums over an axis of size 1 loses its conversion to a wider type if its
    operand has another reader, or the compiler crashes.
    Trap: traps/test_contractions.py::test_outer_product
    """

    name = "multiply-outer"

    def finds(self, op: Op) -> bool:
        """True if an op is a product with one term, of another type than an operand."""
        dims = Dims.match(op)
        if dims is None:
            return False
        shape = shape_of(op.operation.operands[0])
        types = {dtype_of(v) for v in (*op.operation.operands, op.operation.results[0])}
        return len(types) > 1 and all(shape[a] == 1 for a in dims.contracted(0))

    def rewritten(self, op: Op) -> list[ir.Value]:
        dims, result = Dims.of(op), op.operation.results[0]
        operands = list(op.operation.operands)
        shapes = [shape_of(v) for v in operands]
        wide = [OPS.convert(v, dtype_of(result)) for v in operands]
        return [OPS.mul(*(dims.spread(side, *shapes)(v) for side, v in enumerate(wide)))]
