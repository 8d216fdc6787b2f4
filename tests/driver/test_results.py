"""The containers in which a compiled model gives back the results of its function."""

import pickle
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

import jq


class Pair(NamedTuple):
    first: jax.Array
    second: jax.Array | None


def test_containers_are_the_functions_own(tmp_path: Path) -> None:
    """Files do not know the class: there a tuple of the leaves stands for it."""
    x = np.ones((2, 4), np.float32)

    def fn(params: None, x: jax.Array) -> dict:
        return {"pair": Pair(x + 1, None), "list": [x, (x,)]}

    compiled = jq.compile(jq.Model(fn, None, (x,)), "float")
    found = compiled(x)
    assert jax.tree.structure(found) == jax.tree.structure(fn(None, x))
    assert isinstance(found["pair"], Pair) and isinstance(found["pair"].first, np.ndarray)
    compiled.save(tmp_path / "out")
    for other in (jq.load(tmp_path / "out"), pickle.loads(pickle.dumps(compiled))):
        plain = other(x)
        assert type(plain["pair"]) is tuple and type(plain["list"]) is list
        np.testing.assert_array_equal(plain["pair"][0], found["pair"].first)
