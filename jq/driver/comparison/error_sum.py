"""The error of one tensor against another, summed over a stream of pairs.

sqnr_db = 10 log10(sum r^2 / sum (r - q)^2), inf when equal; cosine: mean over samples. An
element that is NaN or inf on one side and different on the other makes the error infinite.
"""

import math

import numpy as np

FLOOR_DB = 15.0  # below this an output is far from the float model's: nobody wants it unawares


class ErrorSum:
    """Running error of one tensor; `add` takes samples as rows: [n, ...] or, with one, [...]."""

    def __init__(self) -> None:
        self.signal = self.noise = self.max_error = 0.0
        self.cosines: list[float] = []
        self.equal = self.count = self.nonfinite = 0

    def add(self, reference: np.ndarray, quantized: np.ndarray, samples: int = 1) -> None:
        r, q = _rows(reference, samples), _rows(quantized, samples)
        same = (r == q) | (np.isnan(r) & np.isnan(q))
        finite = np.isfinite(r) & np.isfinite(q)
        broken = ~finite & ~same
        self.equal += int(same.sum())
        self.count += r.size
        self.nonfinite += int(broken.sum())
        r, q = np.where(finite, r, 0.0), np.where(finite, q, 0.0)
        self.signal += float(np.sum(r * r))
        self.noise += float(np.sum((r - q) ** 2))
        self.max_error = max(self.max_error, float(np.max(np.abs(r - q), initial=0.0)))
        self.cosines += np.where(broken.any(1), 0.0, cosine_of_rows(r, q)).tolist()

    @property
    def sqnr_db(self) -> float:
        if self.nonfinite:
            return -math.inf
        if self.noise == 0:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf

    @property
    def max_abs_error(self) -> float:
        return math.inf if self.nonfinite else self.max_error

    @property
    def cosine(self) -> float:
        return float(np.mean(self.cosines)) if self.cosines else 1.0


def _rows(array: np.ndarray, samples: int) -> np.ndarray:
    """f64[samples, n]; a complex number is two numbers."""
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1)
    return array.astype(np.float64).reshape(samples, array.size // max(samples, 1))


def cosine_of_rows(r: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The cosine of each pair of rows, in [-1, 1].

    Rows are divided by their largest magnitude first, so that squares neither overflow nor vanish.

    Args:
        r, q: floats [n, d].

    Returns:
        [n]; 1 where both rows are zero, 0 where one of them is.
    """
    rows = []
    for x in (r, q):
        largest = np.max(np.abs(x), axis=1, keepdims=True, initial=0.0)
        rows.append(x / np.where(largest > 0, largest, 1.0))
    a, b = rows
    norms = np.sqrt(np.sum(a * a, axis=1) * np.sum(b * b, axis=1))  # exact where a equals b
    both_zero = ~a.any(1) & ~b.any(1)
    cosine = np.sum(a * b, axis=1) / np.where(norms > 0, norms, 1.0)
    return np.where(both_zero, 1.0, np.clip(cosine, -1.0, 1.0))


def is_integer(array: np.ndarray) -> bool:
    """True if an array holds integers or truth values; those of `ml_dtypes` (int4) too."""
    return array.dtype.kind in "iub" or array.dtype.name.startswith(("int", "uint"))
