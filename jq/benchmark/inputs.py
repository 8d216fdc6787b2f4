"""Inputs for a program that has none recorded."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from jq.ir import TensorSpec


def random_inputs(specs: Sequence[TensorSpec], seed: int = 0) -> list[np.ndarray]:
    """Inputs of the right shapes and types: floats from a normal distribution, small integers
    that are not negative (as indices are), random booleans."""
    rng = np.random.default_rng(seed)
    return [_random(rng, spec) for spec in specs]


def _random(rng: np.random.Generator, spec: TensorSpec) -> np.ndarray:
    dtype = np.dtype(getattr(ml_dtypes, spec.dtype, spec.dtype))
    if dtype.kind == "b":
        return rng.random(spec.shape) < 0.5
    if dtype.kind in "iu" or "int" in dtype.name:
        return rng.integers(0, 8, spec.shape).astype(dtype)
    return rng.standard_normal(spec.shape).astype(dtype)
