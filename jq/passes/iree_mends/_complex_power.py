"""Powers of complex64 numbers in polar coordinates, as XLA takes them.

    x^(c + di) = |x|^c exp(-d arg x) (cos q + i sin q)   with q = c arg x + d log |x|

0 to a power of positive real part is 0, and anything to the power 0 is 1.
"""

import numpy as np

from jq.ir import ir, shape_of, tensor_type
from jq.ir.arrays import StableHloOps
from jq.passes.iree_mends.functions._powers import power

OPS = StableHloOps()


def complex_power(x: ir.Value, y: ir.Value) -> ir.Value:
    (a, b), (c, d) = _parts(x), _parts(y)
    size = _size(a, b)
    angle = _apply("atan2", b, a)
    log = _apply("log", size)
    radius = OPS.mul(power(size, c), _apply("exponential", OPS.mul(_minus(d), angle)))
    turn = OPS.add(OPS.mul(c, angle), OPS.mul(d, log))
    result = [OPS.mul(radius, _apply(f, turn)) for f in ("cosine", "sine")]

    zero, one = _full(a, 0), _full(a, 1)
    vanishes = OPS.bit_and(OPS.equal(size, zero), OPS.compare(c, zero, "GT"))
    nothing = OPS.bit_and(OPS.equal(c, zero), OPS.equal(d, zero))
    real, imaginary = (OPS.select(vanishes, zero, v) for v in result)
    both = [OPS.select(nothing, one, real), OPS.select(nothing, zero, imaginary)]
    kind = tensor_type(shape_of(x), np.complex64)
    return ir.Operation.create("stablehlo.complex", results=[kind], operands=both).result


def _size(a: ir.Value, b: ir.Value) -> ir.Value:
    """|a + bi|, also where the squares would overflow or vanish."""
    a, b = OPS.abs(a), OPS.abs(b)
    long, short = OPS.maximum(a, b), OPS.minimum(a, b)
    zero, one = _full(a, 0), _full(a, 1)
    ratio = OPS.div(short, OPS.select(OPS.equal(long, zero), one, long))
    return OPS.mul(long, _apply("sqrt", OPS.add(one, OPS.mul(ratio, ratio))))


def _parts(x: ir.Value) -> list[ir.Value]:
    kind = tensor_type(shape_of(x), np.float32)
    return [
        ir.Operation.create(f"stablehlo.{part}", results=[kind], operands=[x]).result
        for part in ("real", "imag")
    ]


def _apply(name: str, *operands: ir.Value) -> ir.Value:
    kind = operands[0].type
    return ir.Operation.create(f"stablehlo.{name}", results=[kind], operands=operands).result


def _minus(x: ir.Value) -> ir.Value:
    return _apply("negate", x)


def _full(like: ir.Value, value: float) -> ir.Value:
    return OPS.broadcast(OPS.constant(np.asarray(value, np.float32)), shape_of(like), [])
