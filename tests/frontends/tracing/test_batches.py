"""Data as people bring them: what is wrong with them is said with its place and what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.errors import UserError

X = np.ones((4, 16), np.float32)


def source() -> jq.Source:
    return jq.trace(jq.Model(lambda p, x: x @ p, np.ones((16, 8), np.float32), (X,)))


class Loader:
    """A data loader of another framework: it can be gone along."""

    def __init__(self, *batches: Any) -> None:
        self.batches = batches

    def __iter__(self) -> Any:
        return iter(self.batches)


class Frame:
    """The part of pandas' interface that a table is read by."""

    shape, dtypes = (4, 16), ()

    def __iter__(self) -> Any:
        return iter(range(16))


@pytest.mark.parametrize(
    "data", [[(X,), (X,)], ([X], [X]), Loader((X,), (X,)), lambda: [(X,)] * 2, ((X,) for _ in "ab")]
)
def test_batches(data: Any) -> None:
    calls = source().calls(data)
    assert calls is not None and [len(call) for call in calls] == [1, 1]
    assert all(np.array_equal(call[0], X) for call in calls)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.stack([X, X]), r"not a ndarray; give \[\(x,\)\] if it is one batch"),
        (jnp.stack([X, X]), r"not a ArrayImpl; give"),
        ({"x": X}, r"not a dict; give \[\(arrays\[NAME\],\)\]"),
        (Frame(), r"not a Frame; .*to_numpy"),
        (3, r"not a int; give"),
        ([X, X], r"not as ndarray \[batch 0 of the data\]; a batch of one array is \(x,\)"),
        (Loader({"image": X}), r"not as dict \[batch 0 of the data\]; a batch of one array"),
        (Loader((X,), (X, 1)), r"takes 1 \[batch 1 of the data\]; leave out .* labels"),
        ([(X,), (X[:3],)], r"\[batch 1 of the data\]; the program takes 4 at a time.*a last one"),
        ([(X[0],)], r"batch 0 of the data\]; it is one sample: give 4 together"),
        ([(X[None],)], r"batch 0 .*; its first axis is one too many"),
        ([(jax.ShapeDtypeStruct(X.shape, X.dtype),)], r"shape .*without values \[batch 0"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(data: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        source().calls(data)


def test_an_archive_of_numpy_is_named_by_its_path(tmp_path: Path) -> None:
    np.savez(tmp_path / "samples.npz", arg0=np.stack([X, X]))
    with np.load(tmp_path / "samples.npz") as archive, pytest.raises(UserError, match="path of an"):
        source().calls(archive)
    assert len(source().calls(tmp_path / "samples.npz") or ()) == 2


def test_one_sample_for_a_batch_of_one() -> None:
    model = jq.Model(lambda p, x: x @ p, np.ones((16, 8), np.float32), (X[:1],))
    with pytest.raises(UserError, match=r"add the axis of the batch, x\[None\]"):
        jq.trace(model).calls([(X[0],)])
