"""Truth values that a float product reads as numbers are written down as numbers.

    dot_general (convert %one_hot), %w               // from i1
    ->
    dot_general (optimization_barrier (convert ...)), %w

IREE takes the conversion into the product. A program that is refused is compiled without packing
(a product in a quarter of the speed).
"""

from dataclasses import dataclass

import numpy as np

from jq.ir import Op, dtype_of, ir
from jq.ir.ops.lookup import multiplies, rule_of
from jq.ir.ops.moves import Movement
from jq.ir.values import maker
from jq.passes.iree_mends.mend import Read, Shield


@dataclass(frozen=True)
class ShieldBooleans(Shield):
    """A product with an operand that is converted from truth values is refused where products are
    packed.
    Trap: iree/test_iree_defects.py::test_products_of_truth_values_are_packed
    """

    name = "shield-booleans"

    def finds(self, op: Op) -> list[Read]:
        if not multiplies(op):
            return []
        return [(op, i) for i in (0, 1) if _is_boolean(op.operation.operands[i])]


def _is_boolean(value: ir.Value) -> bool:
    """True if truth values are made numbers, and at most moved from there on."""
    while (op := maker(value)) is not None:
        source = list(op.operation.operands)[:1]
        if op.operation.name == "stablehlo.convert" and dtype_of(source[0]) == np.bool_:
            return True
        if not isinstance(rule_of(op), Movement):
            return False
        value = source[0]
    return False
