"""The parameters of a model with some leaves exchanged."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax

from jq.model import Model
from jq.tracing.leaves import leaf_names


def with_params(model: Model, leaves: Mapping[str, Any]) -> Model:
    """A model like `model` whose parameters of these names are other leaves."""
    found, tree = jax.tree_util.tree_flatten_with_path(model.params)
    names = leaf_names([path for path, _ in found], "params")
    new = [leaves.get(name, leaf) for name, (_, leaf) in zip(names, found, strict=True)]
    return dataclasses.replace(model, params=jax.tree_util.tree_unflatten(tree, new))
