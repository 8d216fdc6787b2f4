"""Contractions of unsigned integers are computed on signed ones behind a barrier.

dot_general(%x : ui8, %w) -> dot_general(barrier(convert %x : i32), ...)
"""

from dataclasses import dataclass

import numpy as np

from jq.ir import Op, dtype_of, ir
from jq.ir.arrays import StableHloOps
from jq.ir.build import barrier
from jq.ir.ops.lookup import is_product
from jq.ir.values import maker
from jq.passes.iree_mends.mend import Mend

OPS = StableHloOps()


@dataclass(frozen=True)
class ShieldUnsigned(Mend):
    """Unsigned operands of a product are taken for signed ones, also after a `convert`.
    Trap: traps/test_contractions.py::test_unsigned_operands
    """

    name = "shield-unsigned"

    def finds(self, op: Op) -> bool:
        return is_product(op) and any(_unsigned(v) for v in op.operands)

    def rewritten(self, op: Op) -> None:
        result = dtype_of(op.results[0])
        wide = result if result.kind != "u" else np.dtype(f"i{result.itemsize}")
        for i, value in enumerate(op.operands):
            op.operation.operands[i] = barrier(OPS.convert(value, wide))


def _unsigned(value: ir.Value) -> bool:
    """True if the value is unsigned, or converted from something unsigned."""
    if dtype_of(value).kind == "u":
        return True
    converted = maker(value, "stablehlo.convert")
    return converted is not None and dtype_of(converted.operands[0]).kind == "u"
