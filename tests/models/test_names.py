"""Ops have the same names, and programs the same bits, whatever the version of JAX.

`digests.json` was written with one version; every other has to give the same. The weights are drawn
by their names, since training gives other ones with every XLA.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jq
from jq.base.from_jax import leaf_name
from jq.frontends.model import Model

# Sizes at which nothing takes long.
MODELS: dict[str, dict[str, Any]] = {
    "digits_cnn": {"width": 4},
    "mlp": {},
    "gpt": {"layers": 1, "hidden": 64, "vocabulary": 64, "context": 16},
    "resnet": {"depth": 14, "width": 4, "image": 32, "classes": 10},
    "mobilenet": {"depth": 0.25, "width": 0.25, "image": 32, "classes": 10},
    "minilm": {"layers": 1},
}
FILE = Path(__file__).with_name("digests.json")


def drawn(model: Model) -> Model:
    """The model with weights that its names decide, of a size at which no sum grows: vectors are
    positive, since variances are among them, and all else is of either sign."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(model.params)

    def values(path: Any, leaf: Any) -> Any:
        if np.dtype(leaf.dtype).kind != "f":
            return leaf
        seed = hashlib.sha256(leaf_name(path).encode()).digest()
        rng = np.random.default_rng(list(seed))
        found = rng.uniform(0.5, 1, leaf.shape)
        if found.ndim > 1:
            found *= rng.choice([-1, 1], leaf.shape) / np.sqrt(found[..., 0].size)
        return found.astype(leaf.dtype)

    new = [values(path, leaf) for path, leaf in leaves]
    return replace(model, params=jax.tree_util.tree_unflatten(tree, new))


def untrained(key: str, train: Any, shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def built(name: str) -> Model:
    """A built-in model at its size here, with drawn weights."""
    module = importlib.import_module(f"jq.models.zoo.{name}")
    with pytest.MonkeyPatch.context() as patch:
        if hasattr(module, "cached"):
            patch.setattr(module, "cached", untrained)
        return drawn(module.build(**MODELS[name]))


def digests(name: str) -> dict[str, Any]:
    """The digest of the text and weights of each level, and the names of the ops as traced.

    Recovery looks at data through XLA, whose sums differ between versions in their last places.
    """
    model = built(name)
    free = jq.rewrite(model, pipeline="int8-dynamic", settings={"recovery": False})
    programs = {"float": jq.trace(model).program, "integer": free["integer"]}
    found: dict[str, Any] = {level: digest(program) for level, program in programs.items()}
    return found | {"names": sorted(names(programs["float"]))}


def digest(program: Any) -> str:
    whole = hashlib.sha256(program.text().encode())
    for name, array in sorted(program.weights.items()):
        whole.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()


def names(program: Any) -> Iterator[str]:
    for op in program.walk():
        if "jq.name" in op.attributes:
            yield op.attributes["jq.name"].value


@pytest.mark.parametrize("name", MODELS)
def test_every_jax_gives_the_same_names_and_bits(name: str) -> None:
    assert digests(name) == json.loads(FILE.read_text())[name]
