"""Names of the leaves of a pytree, and parameters with some leaves exchanged."""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, count
from typing import Any

import jax

from jq.base.from_jax import is_value, leaf_name, position
from jq.frontends.model import Model


def leaf_names(paths: Sequence[Sequence[Any]], kind: str) -> list[str]:
    """The names of all leaves; what would start with a position gets `kind` in front: `arg0/x`.

    A box around one array, such as a Flax variable, adds `value` to its path: that is left out.
    Names are unique: where keys with slashes or colons make two of them equal (or one look like
    a stored part of another, `kernel:scale`), the later gets `#2`.
    """
    inside = Counter(tuple(path[:n]) for path in paths for n in range(len(path)))
    names = []
    for path in paths:
        boxed = len(path) > 1 and is_value(path[-1]) and inside[tuple(path[:-1])] == 1
        name = leaf_name(path[:-1] if boxed else path) or f"{kind}0"
        named = not path or position(path[0]) is None
        names.append(name if named else f"{kind}{name}")
    return unique(names)


def unique(names: Sequence[str]) -> list[str]:
    """The names, made different from one another as `leaf_names` says."""
    natural, taken = set(names), dict[str, None]()
    for name in names:
        own = [] if name.rpartition(":")[0] in natural else [name]
        numbered = (n for i in count(2) if (n := f"{name}#{i}") not in natural)
        taken[next(n for n in chain(own, numbered) if n not in taken)] = None
    return list(taken)


def with_params(model: Model, leaves: Mapping[str, Any]) -> Model:
    """A model like `model` whose parameters of these names are other leaves."""
    found, tree = jax.tree_util.tree_flatten_with_path(model.params)
    names = leaf_names([path for path, _ in found], "params")
    new = [leaves.get(name, leaf) for name, (_, leaf) in zip(names, found, strict=True)]
    return dataclasses.replace(model, params=jax.tree_util.tree_unflatten(tree, new))
