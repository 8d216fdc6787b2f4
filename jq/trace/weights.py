"""Parameter leaves become the named arrays of a program."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.errors import UserError


def to_array(leaf: Any, dtype: np.dtype[Any], name: str) -> np.ndarray:
    """The leaf's data in the type it was traced with; NaN and infinity are refused.

    The array shares the leaf's memory when that is possible.
    """
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf).astype(dtype, copy=False)
    check_finite(array, name)
    return array


def check_finite(array: np.ndarray, name: str) -> None:
    """Raises `UserError` that names the weight when it holds NaN or infinity."""
    if not jnp.issubdtype(array.dtype, np.floating):
        return
    if array.dtype.itemsize == 2:
        # Looking at the exponent bits is far faster than arithmetic in 16 bits.
        exponent = 0x7C00 if array.dtype == np.float16 else 0x7F80
        finite = not ((array.view(np.uint16) & exponent) == exponent).any()
    else:
        # A sum is finite unless an element is not, or it overflows: then every one is looked at.
        with np.errstate(over="ignore", invalid="ignore"):
            finite = bool(np.isfinite(array.astype(np.float32, copy=False).sum(dtype=np.float64)))
            finite = finite or bool(np.isfinite(array).all())
    if not finite:
        raise UserError("weight holds NaN or infinity", op=name, hint="check the checkpoint")


def is_same_data(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are the same memory read in the same way (tied weights)."""
    return (
        a.size > 1
        and a.shape == b.shape
        and a.dtype == b.dtype
        and a.strides == b.strides
        and a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
    )
