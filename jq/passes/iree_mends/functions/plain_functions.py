"""Rewrites the elementwise functions that IREE 3.13 computes badly, to the last places of float32.

    sine %x       ->  a polynomial of what is left of %x in its octant (`_angles`)
    cosine, tan       likewise
    cbrt %x       ->  a few steps of an iteration, in float64 (`_roots`)
    logistic %x   ->  convert (logistic (convert %x : f32)), for %x of 16 bits

IREE's sine, cosine and tangent lose what is next to zero and everything from 1,000 on, its cube
root of infinity is NaN, and its logistic function of float16 is 0 below -11.
`scripts/suite.py elementwise` measures what remains. float64 stays as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jq.ir import Op, dtype_of, ir, shape_of
from jq.ir.arrays import StableHloOps
from jq.ir.build import like
from jq.passes.iree_mends.functions._angles import cosine, sine, tangent
from jq.passes.iree_mends.functions._roots import cube_root
from jq.passes.iree_mends.mend import Mend

OPS = StableHloOps()
REWRITTEN: dict[str, Callable[[ir.Value], ir.Value]] = {
    "stablehlo.sine": sine,
    "stablehlo.cosine": cosine,
    "stablehlo.tan": tangent,
    "stablehlo.cbrt": cube_root,
}
WIDENED = ("stablehlo.logistic",)
NARROW = ("float16", "bfloat16")


@dataclass(frozen=True)
class PlainFunctions(Mend):
    """Sines, cosines and tangents lose digits from 1,000 on, are without any from 1e6 on, and
    infinite at 1e20; next to zero they have an absolute error.
    Trap: traps/test_functions.py::test_the_compilers_own

    The cube root of infinity is NaN.
    Trap: traps/test_functions.py::test_the_compilers_own_cube_root
    """

    name = "plain-functions"

    def finds(self, op: Op) -> bool:
        name = op.operation.name
        if name not in REWRITTEN and name not in WIDENED:
            return False
        kind = dtype_of(op.operation.results[0]).name
        return kind in NARROW or (kind == "float32" and name in REWRITTEN)

    def rewritten(self, op: Op) -> list[ir.Value]:
        x = OPS.convert(op.operation.operands[0], np.float32)
        build = REWRITTEN.get(op.operation.name)
        result = like(op, [x], shape_of(x), np.float32) if build is None else build(x)
        return [OPS.convert(result, dtype_of(op.operation.results[0]))]
