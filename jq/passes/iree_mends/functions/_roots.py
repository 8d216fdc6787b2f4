"""The cube root of any float32 number, rounded once from float64.

    y^3 = x:   y <- y (y^3 + 2 x) / (2 y^3 + x)

Halley's iteration has three times as many right digits after each step. It starts from a third of
the bits of x, read as an integer, which is right to a twentieth.
"""

from typing import Any

import numpy as np

from jq.ir import ir, shape_of
from jq.ir.arrays import StableHloOps

OPS = StableHloOps()
STEPS = 3
BIAS = 127 << 23  # the bits of 1.0


def cube_root(x: ir.Value) -> ir.Value:
    def full(value: Any) -> ir.Value:
        return OPS.broadcast(OPS.constant(np.asarray(value)), shape_of(x), [])

    size = OPS.abs(x)
    third = OPS.quotient(OPS.bitcast(size, np.int32), full(np.int32(3)))
    start = OPS.add(third, full(np.int32(2 * BIAS // 3)))
    exact, root = (
        OPS.convert(size, np.float64),
        OPS.convert(OPS.bitcast(start, np.float32), np.float64),
    )
    two = full(np.float64(2))
    for _ in range(STEPS):
        cube = OPS.mul(OPS.mul(root, root), root)
        above, below = OPS.add(cube, OPS.mul(two, exact)), OPS.add(OPS.mul(two, cube), exact)
        root = OPS.mul(root, OPS.quotient(above, below))
    root = OPS.convert(root, np.float32)
    negative = OPS.compare(OPS.bitcast(x, np.int32), full(np.int32(0)), "LT")
    root = OPS.select(negative, OPS.mul(root, full(np.float32(-1))), root)
    # Zero and infinity are their own roots, and so is NaN.
    special = OPS.equal(size, OPS.add(size, size))
    number = OPS.compare(size, full(np.float32(np.inf)), "LT")
    return OPS.select(special, x, OPS.select(number, root, full(np.float32(np.nan))))
