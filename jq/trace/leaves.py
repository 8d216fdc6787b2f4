"""Names of the leaves of a pytree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax


def leaf_name(path: Sequence[Any]) -> str:
    """`layer1/0/kernel` for the path of a leaf; empty for a tree that is a leaf itself."""
    return jax.tree_util.keystr(tuple(path), simple=True, separator="/")


def leaf_names(paths: Sequence[Sequence[Any]], kind: str) -> list[str]:
    """The names of all leaves; what would start with a position gets `kind` in front: `arg0/x`."""
    names = []
    for path in paths:
        name = leaf_name(path) or f"{kind}0"
        named = not path or not isinstance(path[0], jax.tree_util.SequenceKey)
        names.append(name if named else f"{kind}{name}")
    return names
