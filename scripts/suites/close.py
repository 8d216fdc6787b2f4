"""Equality of two results: integers exactly, floats within the rounding of their type.

`|a - b| <= ROUNDINGS * eps * (|b| + size)`, where `eps` is the step of the type at 1. `size` is 0
for what is computed element by element: nothing but the last bits may differ. For what adds or
multiplies many numbers, in whatever order, it is the largest number of the result. Infinities and
NaN stand in the same places. Numbers below the smallest normal one count as zero: XLA flushes them.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

# Steps of the last place. Functions of float32 are approximated by XLA and by IREE, each in its own
# way; those of 16 bits are computed in float32 and rounded once or, op by op, a few times.
ROUNDINGS = {4: 32, 2: 4, 8: 32}


def is_exact(dtype: np.dtype) -> bool:
    """True for a type whose numbers are not rounded; NumPy has no kind for those of 4 bits."""
    return dtype.kind in "biu" or dtype.name.removeprefix("u").startswith("int")


def difference(
    ours: np.ndarray, theirs: np.ndarray, *, sums: bool = False, allowed: np.ndarray | float = 0.0
) -> str:
    """The difference in words; empty where the results are equal.

    Args:
        ours, theirs: the result and the reference.
        sums: whether many numbers are added up.
        allowed: a further error of each element, as of a number format.
    """
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype}{list(ours.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
    if is_exact(ours.dtype):
        return _told(ours != theirs, ours, theirs)
    if ours.dtype.kind == "c":
        return _complex(ours, theirs, sums, allowed)
    kind = ml_dtypes.finfo(ours.dtype)
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    odd = ~(np.isfinite(a) & np.isfinite(b))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    a, b = np.where(odd, 0, a), np.where(odd, 0, b)
    size = np.max(np.abs(b), initial=0.0) if sums else 0.0
    eps = float(kind.eps) * ROUNDINGS.get(ours.dtype.itemsize, 1)
    bound = eps * (np.abs(b) + size) + allowed + float(kind.smallest_normal)
    return _told(np.where(odd, ~same, np.abs(a - b) > bound), ours, theirs)


def rounding_power(theirs: np.ndarray) -> float:
    """The sum of squares of what `difference` allows for sums."""
    kind = ml_dtypes.finfo(theirs.real.dtype)
    b = np.abs(theirs.astype(np.complex128))
    b = b[np.isfinite(b)]
    eps = float(kind.eps) * ROUNDINGS.get(theirs.real.dtype.itemsize, 1)
    return float(np.sum((eps * (b + b.max(initial=0.0)) + float(kind.smallest_normal)) ** 2))


def _complex(ours: np.ndarray, theirs: np.ndarray, sums: bool, allowed: np.ndarray | float) -> str:
    """Within the rounding of the number's size: a part that is small beside the other has fewer
    digits."""
    finite = np.isfinite(ours) & np.isfinite(theirs)
    size = np.max(np.abs(theirs[finite]), initial=0.0) if sums else 0.0
    for part in ("real", "imag"):
        a, b = getattr(ours, part), getattr(theirs, part)
        room = np.where(finite, np.abs(theirs) + size, 0).astype(np.float64)
        eps = float(np.finfo(a.dtype).eps) * ROUNDINGS[a.dtype.itemsize]
        if found := difference(a, b, allowed=room * eps + allowed):
            return f"{part} part: {found}"
    return ""


def _told(wrong: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> str:
    if not wrong.any():
        return ""
    first = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    where = f" at {[int(i) for i in first]}" if first else ""
    return (
        f"{int(wrong.sum())} of {wrong.size} {ours.dtype} differ:"
        f" {ours[first]} instead of {theirs[first]}{where}"
    )
