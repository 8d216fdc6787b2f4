"""Nested dicts of parameters (also as one dict with `/` in its names), and specs of inputs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import jax


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """`{"a/b": x}` -> `{"a": {"b": x}}`."""
    tree: dict[str, Any] = {}
    for path, leaf in flat.items():
        *parents, last = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = leaf
    return tree


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """`{"a": {"b": x}}` -> `{"a/b": x}`, leaves as NumPy arrays."""
    flat: dict[str, np.ndarray] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}/")
        else:
            flat[prefix + name] = np.asarray(value)
    return flat


def spec(shape: tuple[int, ...], dtype: Any) -> "jax.ShapeDtypeStruct":
    """Shape and type of an input."""
    import jax  # reading a file's tensors needs none of it

    return jax.ShapeDtypeStruct(shape, dtype)
