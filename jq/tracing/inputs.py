"""Inputs as a user passes them, to the flat arrays that a program takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.errors import UserError
from jq.ir import TensorSpec
from jq.tree import Structure, flatten

# What JAX makes of an array of 64 bits, unless `jax_enable_x64` is set.
_NARROWED = {
    "int64": "int32",
    "uint64": "uint32",
    "float64": "float32",
    "complex128": "complex64",
}


def flat_inputs(
    specs: Sequence[TensorSpec], structure: Structure, inputs: Sequence[Any]
) -> list[np.ndarray]:
    """One array per input of the program, its shape and type checked.

    A Python number or list takes the input's type; an array must have it, or one of 64 bits that
    JAX narrows to it; integers have to fit, which JAX does not ask. A typed random key
    (`jax.random.key`) is its data.
    """
    if not isinstance(inputs, Sequence) or isinstance(inputs, str):
        raise UserError(
            f"inputs come as a tuple, one entry an input, not as {type(inputs).__name__}",
            hint="a batch of one array is (x,)",
        )
    children = structure.get("tuple", structure.get("list"))
    if children is not None and len(inputs) != len(children):
        raise UserError(f"{len(inputs)} inputs given, the model takes {len(children)}")
    try:
        leaves = flatten(structure, tuple(inputs))
    except ValueError as error:
        raise UserError(f"inputs do not fit the model: {error}") from error
    return [check_array(spec, leaf) for spec, leaf in zip(specs, leaves, strict=True)]


def check_array(spec: TensorSpec, value: Any) -> np.ndarray:
    """`value` as the array that `spec` asks for, or a `UserError` that says what differs."""
    if jnp.issubdtype(getattr(value, "dtype", np.void), jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    try:
        array = np.asarray(value) if hasattr(value, "dtype") else np.asarray(value, spec.dtype)
    except (ValueError, TypeError, OverflowError) as error:
        raise UserError(f"input {spec.name!r} is no array of {spec.dtype}: {error}") from error
    if _NARROWED.get(array.dtype.name) == spec.dtype:
        wide, array = array, array.astype(spec.dtype)
        if array.dtype.kind in "iu" and (array != wide).any():
            raise UserError(f"input {spec.name!r} has values that do not fit {spec.dtype}")
    if array.dtype.name != spec.dtype:
        raise UserError(
            f"input {spec.name!r} has type {array.dtype.name}, the model takes {spec.dtype}",
            hint=f"convert it with .astype({spec.dtype!r})",
        )
    if array.shape != spec.shape:
        raise UserError(
            f"input {spec.name!r} has shape {array.shape}, the model takes {spec.shape}"
        )
    return array
