"""Activation functions in double precision, rounded once: what kernels are held against."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def gelu_reference(x: Array, approximate: bool) -> Array:
    """The exact function, in double precision, rounded once."""
    wide = np.asarray(x, np.float64)
    return _rounded(wide * phi(wide, approximate))


def silu_reference(x: Array) -> Array:
    """The exact function, in double precision, rounded once."""
    wide = np.asarray(x, np.float64)
    return _rounded(wide * np.exp(-np.logaddexp(0, -wide)))


def phi(x: Array, approximate: bool) -> Array:
    """The normal distribution's, or its tanh form."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    bell: Array = np.tanh(inner) if approximate else _erf(x / math.sqrt(2))
    return (1 + bell) / 2


def _erf(x: Array) -> Array:
    values: Array = np.vectorize(math.erf, otypes=[np.float64])(x)
    return values


def _rounded(x: Array) -> Array:
    return x.astype(np.float32)
