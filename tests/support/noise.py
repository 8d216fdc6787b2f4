"""Noise that a quantized program may have, from the steps of its formats.

An activation in `b` bits has steps of its range / (2^b - 1) and noise of step^2 / 12, where the
range is taken to be 2 * CREST times the root of its mean square. The noise of all roundings adds
up, and passes a network as the signal does but for the factor GAIN.
"""

from __future__ import annotations

import numpy as np

from jq.ir import Program, dtype_of

CREST, GAIN = 8, 4


def rounding(bits: int = 8) -> float:
    """Power of the noise of one rounding, over the power of the signal."""
    return (2 * CREST / (2**bits - 1)) ** 2 / 12


def error(got: np.ndarray, want: np.ndarray) -> float:
    """Power of the difference over power of the signal."""
    assert np.isfinite(got).all()
    got, want = got.astype(np.float64), want.astype(np.float64)
    return float(np.sum((got - want) ** 2) / max(np.sum(want**2), 1e-30))


def bound(integer: Program) -> float:
    """Bound on `error` of a program at the `integer` level: every int8 tensor that it makes by
    a conversion, and every stored weight, is a rounding."""
    made = sum(
        op.operation.name == "stablehlo.convert" and dtype_of(op.operation.results[0]) == np.int8
        for op in integer.walk_all()
    )
    return min(GAIN * (made + len(integer.encodings)) * rounding(), 1.0)
