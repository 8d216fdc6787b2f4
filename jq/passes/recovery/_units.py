"""Powers of two that are taken out of numbers whose squares float32 does not hold.

They are exact, and what recovery looks for (codes, ratios of errors) does not depend on them."""

import numpy as np

FAR = 40  # exponents: squares of sums of thousands of such numbers stay in float32


def far_exponents(largest: np.ndarray) -> np.ndarray:
    """Exponents, int32, of those magnitudes that are far from 1; 0 for all others."""
    exponent = np.frexp(largest)[1]
    return np.where(np.abs(exponent) > FAR, exponent, 0)


def near_one(x: np.ndarray) -> np.ndarray:
    """`x` (floats of any shape), its largest magnitude taken next to 1."""
    return np.ldexp(x, -np.frexp(np.abs(x).max(initial=0.0))[1])
