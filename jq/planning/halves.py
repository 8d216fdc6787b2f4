"""Products of float activations and stored weights whose operands are rounded to bfloat16.

By default, where the pipeline quantizes weights alone, in formats whose own error is larger:
rounding both operands adds -53 dB of the signal (2^-16 / 3 times the mean of 1 / m^2, twice),
int8 per channel about -42. What came quantized is multiplied as it is."""

import math

import numpy as np

from jq.base.errors import FormatError
from jq.formats import Encoding, get_format
from jq.ir import Op, dtype_of, shape_of
from jq.ir.layout import MatrixForm
from jq.ir.ops import Role
from jq.ir.ops.dims import Dims
from jq.kernels import DecodeDot
from jq.planning.decisions import TensorPlan
from jq.planning.limits import OpShape
from jq.planning.operands import WeightUse
from jq.target.settings import FLOAT, Settings

ROUNDED = "both operands are rounded to bfloat16 (float_type=float32 leaves them as they are)"
EXACT = "both operands are numbers of bfloat16, and are multiplied as such"
FINEST = 8  # bits of a weight's integers, by default


def asked(weight: TensorPlan, others: list[TensorPlan], s: Settings) -> str:
    """The words for operands that may be bfloat16 numbers, by the settings and what they are; or
    empty. `others`: the activation, if it is quantized."""
    if others:
        exact = all(get_format(p.encoding.format).in_bfloat16 for p in (weight, *others))
        return EXACT if exact and s.float_type in ("own", "bfloat16") else ""
    only = FLOAT == s.activations.format != s.weights.format and not weight.stored
    coarse = (get_format(weight.encoding.format).integer_bits or 0) <= FINEST
    default = s.float_type == "own" and only and coarse
    return ROUNDED if default or s.float_type == "bfloat16" else ""


def halves(op: Op, role: Role, enc: Encoding, use: WeightUse, isa: str) -> bool:
    """True if there is a kernel for the rounded operands of a product with a weight at `role`."""
    floats = all(dtype_of(v) == np.float32 for v in (*op.operands, op.results[0]))
    dims, shape, size = Dims.match(op), shape_of(op.operands[role.index]), shape_of(op.results[0])
    apart = dims.batch if dims else role.index == 0 or OpShape(op).geometry.groups > 1
    apart = apart or not use.contracted
    if isa == "none" or apart or not floats or not get_format(enc.format).in_registers or 0 in size:
        return False
    free = tuple(a for a in range(len(use.shape)) if a not in use.contracted)
    try:
        form = MatrixForm(enc, 0, free, tuple(sorted(use.contracted))).encoding
    except FormatError:
        return False
    n = math.prod(shape[a] for a in range(len(shape)) if a not in role.contracted)
    weight = form.with_shape((n, math.prod(shape) // n), form.block)
    return DecodeDot.of(isa, math.prod(size) // n, weight, True).halved
