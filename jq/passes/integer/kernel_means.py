"""Means of codes as the kernels of AVERAGE_POOL_2D and MEAN of TFLite's reference have them.

AVERAGE_POOL_2D leaves the encoding as it is and rounds ties of codes away from zero:

    (sum + n / 2) / n, or of a negative sum (sum - n / 2) / n, both quotients towards zero

MEAN rescales the sum of `code - zero point`, rounding twice, by the ratio of scales with a mantissa
that is divided by n, of which what is left is lost:

    (mantissa << k) / n, exponent - k,  k = floor(log2(n))

https://github.com/google-ai-edge/LiteRT (tflite/kernels/internal/reference).
"""

import numpy as np

from jq.formats.integer_functions import Output
from jq.formats.requantize import DOUBLE, multiplier
from jq.ir import OPS, Program, ir, shape_of
from jq.ir.affine import Affine
from jq.ir.ops.integer_step import integer_step
from jq.passes.integer._values import Sum, saturated, spread


def kernel_mean(
    program: Program, total: Sum, affine: Affine, out: Output, *, mean: bool
) -> ir.Value | None:
    """The codes of a sum by its number of terms (`affine`); None where it is something else."""
    (x,), counts = total.step.operands, np.rint(1 / affine.c)
    scale, zero = float(x.scale.reshape(())), int(x.zero_point.reshape(()))
    same = (scale, zero) == (out.scale, out.zero_point)
    near = np.allclose(affine.c * counts, 1, rtol=1e-6)
    if affine.b.any() or not near or (counts.size > 1 if mean else not same):
        return None
    shape = shape_of(total.value)
    n = spread(program, counts, shape, f"{total.name}:count")
    if mean:
        count = int(counts.reshape(()))
        mantissa, exponent = map(int, multiplier(np.asarray(scale / out.scale)))
        by = min(count.bit_length() - 1, 31 + exponent)
        parts = (mantissa << by) // count, max(exponent - by, 0), max(by - exponent, 0)
        mantissa, *shifts = (spread(program, np.array(v), shape, total.name) for v in parts)
        steps = DOUBLE.rescale(OPS, total.value, mantissa, tuple(shifts))
    else:
        codes = OPS.add(total.value, OPS.mul(n, zero))
        half = OPS.shift_right_signed(n, 1)
        size = OPS.quotient(OPS.add(OPS.abs(codes), half), n)
        negative = OPS.shift_right_signed(codes, 31)  # -1 or 0
        steps = OPS.sub(OPS.mul(size, OPS.add(OPS.add(negative, negative), 1)), zero)
    step = total.step.giving(out).knowing(bias=np.zeros((), np.int64), behind=np.zeros(()))
    step = step.knowing(factor=scale / out.scale / counts, once=1)
    return integer_step(program, saturated(steps, out), step)
