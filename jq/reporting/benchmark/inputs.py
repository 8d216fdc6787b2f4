"""Inputs for a program that has none recorded."""

import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from jq.base.guard.limits import require_memory
from jq.ir import TensorSpec


def random_inputs(specs: Sequence[TensorSpec], seed: int = 0) -> list[np.ndarray]:
    """Inputs of the right shapes and types: floats from a normal distribution, small integers
    that are not negative (as indices are), random booleans.

    Raises:
        UserError: they take more than the memory of the machine.
    """
    # Numbers are drawn in 64 bits.
    require_memory(sum(8 * math.prod(spec.shape) for spec in specs), "random inputs")
    rng = np.random.default_rng(seed)
    return [_random(rng, spec) for spec in specs]


def _random(rng: np.random.Generator, spec: TensorSpec) -> np.ndarray:
    dtype = np.dtype(getattr(ml_dtypes, spec.dtype, spec.dtype))
    if dtype.kind == "b":
        return rng.random(spec.shape) < 0.5
    if dtype.kind in "iu" or "int" in dtype.name:
        return rng.integers(0, 8, spec.shape).astype(dtype)
    return rng.standard_normal(spec.shape).astype(dtype)
