"""The containers in which a compiled model gives back the results of its function."""

import pickle
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest

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


def test_inputs_by_name_and_nan_that_codes_hide() -> None:
    x, y = np.ones((2, 4), np.float32), np.full((2, 4), 2, np.float32)
    model = jq.Model(lambda w, x, y: (x - y) @ w, np.eye(4, dtype=np.float32), (x, y))
    compiled = jq.compile(model, "int8-static-integer-only", calibration=[(x, y), (y, x)])
    wanted = compiled(x, y)
    for found in (compiled(arg1=y, arg0=x), compiled(x, arg1=y)):
        np.testing.assert_array_equal(found, wanted)
    with pytest.raises(jq.UserError, match="by the names y, the model has arg1"):
        compiled(x, y=y)
    broken = np.where([True, False, False, False], np.nan, x).astype(np.float32)
    with pytest.warns(UserWarning, match="an input has NaN and no output shows it"):
        assert np.isfinite(compiled(broken, y)).all()
    compiled(broken, y)  # once is enough: warnings are errors here
