"""Factors of rescales and sums of two tensors as LiteRT's float32 kernels (XNNPACK) have them.

A sum of two tensors has a multiplier of 21 bits for each, and one shift:

    (A * (x - zero) + B * (y - zero) + 2^(k - 1)) >> k,  k = 20 - exponent of the larger ratio,
    A = rint(2^k * x's scale / the result's)

https://github.com/google/XNNPACK (qs8-vadd)."""

import numpy as np

from jq.formats.integer_functions import Output
from jq.ir import NAME, Program, evaluate, ir, kind_of, maker, string_attr
from jq.ir.affine import Affine
from jq.ir.numbers import Number
from jq.ir.ops.integer_step import IntegerStep, integer_step
from jq.passes.integer._values import centered, leaf_of, saturated, step_of

F32 = np.float32
BITS = 20  # of the larger multiplier, below its first
LEAST, MOST = 2.0**-10, 2.0**8  # ratios of scales that XNNPACK takes
CODES = 255  # largest |code - zero point|: sums stay in int32


def multipliers(scales: np.ndarray, out: float) -> tuple[np.ndarray, int] | None:
    """Those of two tensors and the shift; None where XNNPACK takes no such scales.

    Args:
        scales: float32 [2], may be negative; `out`: of the result.
    """
    ratios = scales.astype(F32) / F32(out)
    size = np.abs(ratios).astype(np.float64)
    if (size < LEAST).any() or (size >= MOST).any():
        return None
    shift = BITS - (int(np.frexp(size.max())[1]) - 1)
    return np.rint(np.ldexp(ratios.astype(np.float64), shift)).astype(np.int32), shift


def sum_of_two(program: Program, affine: Affine, out: Output) -> ir.Value | None:
    """The codes of a sum or a difference of two leaves, by a factor for both; None of others."""
    op = maker(affine.source)
    kind = "" if op is None else kind_of(op).removeprefix("stablehlo.")
    if op is None or kind not in ("add", "subtract") or affine.c.size != 1 or affine.b.any():
        return None
    leaves = [leaf_of(program, v) for v in op.operands]
    known = [leaf for leaf in leaves if leaf is not None and leaf.largest <= CODES]
    if len(known) != 2:
        return None
    signs = np.array([1, -1 if kind == "subtract" else 1])
    scales = np.array([leaf.scale for leaf in known]) * signs * affine.c.reshape(())
    found = multipliers(scales, out.scale)
    if found is None:
        return None
    by, shift = found
    x, y = (Number(centered(leaf)) for leaf in known)
    steps = (x * int(by[0]) + y * int(by[1]) + (1 << (shift - 1))) >> shift
    name = string_attr(op, NAME) or kind
    operands = [leaf.operand for leaf in known]
    step = step_of("subtract" if kind == "subtract" else "add", name, operands, op)
    nothing = np.zeros((), np.int64)
    numbers = {"bias": nothing, "behind": np.zeros(()), "factor": np.array(2.0**-shift)}
    step = step.knowing(multipliers=by, shift=shift, **numbers)
    return integer_step(program, saturated(steps.value, out), step.giving(out))


def factor_of(program: Program, step: IntegerStep, real: np.ndarray, out: float) -> np.ndarray:
    """The factor in float32, computed of scales as the kernels compute it.

    Args:
        real: float64, what a unit of the step's sum is worth.
    """
    scales = [o.scale.reshape(-1) for o in step.operands if evaluate(program, o.codes) is None]
    if [s.size for s in scales] == [1]:
        weight = (real / scales[0].astype(np.float64)).astype(F32)
        real = scales[0].astype(F32).reshape(()) * weight
    elif step.kind == "multiply" and [s.size for s in scales] == [1, 1]:
        product = F32(scales[0][0]) * F32(scales[1][0])
        if abs(float(product) - real).max() <= 2.0**-22 * product:
            real = np.asarray(product)
    return (np.asarray(real, F32) / F32(out)).astype(np.float64)
