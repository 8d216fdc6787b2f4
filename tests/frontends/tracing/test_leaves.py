"""Names of leaves: readable, and never two alike."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.frontends.tracing.inputs import leaf_names, unique

ONE, TWO = np.full((4, 4), 1, np.float32), np.full((4, 4), 2, np.float32)
X = np.ones((2, 4), np.float32)


def names(tree: object) -> list[str]:
    return leaf_names([path for path, _ in jax.tree_util.tree_leaves_with_path(tree)], "arg")


def test_keys_with_slashes() -> None:
    assert names({"a": {"b": 1}, "a/b": 2, "c": [3]}) == ["a/b", "a/b#2", "c/0"]
    assert names(([1, {"": 2}],)) == ["arg0/0", "arg0/1/"]


def test_a_number_that_another_leaf_has_is_not_given() -> None:
    assert unique(["w", "w", "w#2", "w"]) == ["w", "w#3", "w#2", "w#4"]


def test_a_leaf_does_not_look_like_a_part_of_another() -> None:
    assert unique(["w", "w:codes", "v:0"]) == ["w", "w:codes#2", "v:0"]


def test_both_weights_and_both_inputs_are_there() -> None:
    def fn(p, d):
        return d["a/b"] @ p["a"]["b"] + d["a"]["b"] @ p["a/b"]

    params, x = {"a/b": ONE, "a": {"b": TWO}}, {"a/b": X, "a": {"b": 3 * X}}
    source = jq.trace(jq.Model(fn, params, (x,)))
    assert sorted(w[0, 0] for w in source.program.weights.values()) == [1, 2]
    assert [i.name for i in source.program.inputs] == ["arg0/a/b", "arg0/a/b#2"]


def test_input_names_that_are_alike_are_refused() -> None:
    model = jq.Model(lambda p, x, y: x + y, {}, (X, X), input_names=("x", "x"))
    with pytest.raises(UserError, match="two inputs have one name: x, x"):
        jq.trace(model)
