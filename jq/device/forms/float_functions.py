"""ONNX's functions of one number, found by their values: which one a table of codes is."""

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from jq.formats.integer_functions import Output

MARGIN = 1e-3  # steps from a tie, far beyond the errors of float32 functions
Found = tuple[str, dict[str, Any]]


def named_function(real: np.ndarray, codes: np.ndarray, out: Output) -> Found | None:
    """The ONNX op, with its attributes, that gives these codes for these numbers in any float32
    implementation; None where none does for sure.

    Args:
        real: float64; `codes`: of each of them.
    """
    for kind, attributes, function in _candidates():
        with np.errstate(all="ignore"):
            steps = np.asarray(function(real)) / out.scale
            inside = np.clip(steps + out.zero_point, out.low - 1.0, out.high + 1.0)
            safe = np.abs(inside - np.floor(inside) - 0.5) > MARGIN
        found = np.clip(np.rint(inside), out.low, out.high)
        if safe.all() and np.array_equal(found, codes):
            return kind, dict(attributes)
    return None


def _candidates() -> Iterator[tuple[str, Mapping[str, Any], Callable[[np.ndarray], np.ndarray]]]:
    erf = np.vectorize(math.erf, otypes=[np.float64])

    def logistic(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    def tangent(x: np.ndarray) -> np.ndarray:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return 0.5 * x * (1 + np.tanh(inner))

    yield "Relu", {}, lambda x: np.maximum(x, 0)
    yield "Sigmoid", {}, logistic
    yield "Tanh", {}, np.tanh
    yield "HardSwish", {}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)
    yield "HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}, lambda x: np.clip(x / 6 + 0.5, 0, 1)
    yield "Gelu", {}, lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2)))
    yield "Gelu", {"approximate": "tanh"}, tangent
    yield "Elu", {}, lambda x: np.where(x > 0, x, np.expm1(x))
    yield "Softplus", {}, lambda x: np.logaddexp(x, 0)
    for alpha in (0.01, 0.1, 0.2, 0.3):
        yield "LeakyRelu", {"alpha": alpha}, partial(_leaky, alpha)
    yield "Exp", {}, np.exp
    yield "Erf", {}, erf
    yield "Abs", {}, np.abs
    yield "Neg", {}, np.negative
    yield "Sqrt", {}, np.sqrt


def _leaky(alpha: float, x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, alpha * x)
