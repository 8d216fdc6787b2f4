"""Cached weights: stored once, remade when damaged or not what was asked for."""

import numpy as np
import pytest

from jq.models import _store

SHAPES = {"a/kernel": (2, 3)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / "jaxq" / "models"
    monkeypatch.setattr(_store, "folder", lambda: folder)
    return folder


class Maker:
    calls = 0

    def __call__(self):
        self.calls += 1
        return {"a/kernel": np.arange(6, dtype=np.float32).reshape(2, 3)}


def test_made_once(folder):
    make = Maker()
    first, second = (_store.cached("k", make, SHAPES) for _ in range(2))
    assert make.calls == 1
    np.testing.assert_array_equal(first["a/kernel"], second["a/kernel"])
    assert [p.name for p in folder.iterdir()] == ["k.npz"]


@pytest.mark.parametrize("where", [0, 40, 100, 150, -30])
def test_damaged_byte(folder, where):
    make = Maker()
    _store.cached("k", make, SHAPES)
    path = folder / "k.npz"
    data = bytearray(path.read_bytes())
    data[where] ^= 0xFF
    path.write_bytes(data)
    got = _store.cached("k", make, SHAPES)
    np.testing.assert_array_equal(got["a/kernel"], Maker()()["a/kernel"])


@pytest.mark.parametrize("keep", [0, 1, 30, 200])
def test_truncated(folder, keep):
    make = Maker()
    _store.cached("k", make, SHAPES)
    path = folder / "k.npz"
    path.write_bytes(path.read_bytes()[:keep])
    _store.cached("k", make, SHAPES)
    assert make.calls == 2


@pytest.mark.parametrize(
    "other",
    [
        {"a/kernel": np.zeros((3, 2), np.float32)},
        {"b/kernel": np.zeros((2, 3), np.float32)},
        {"a/kernel": np.zeros((2, 3), np.float64)},
        {"a/kernel": np.full((2, 3), np.nan, np.float32)},
    ],
)
def test_other_contents_are_not_used(folder, other):
    folder.mkdir(parents=True)
    np.savez(folder / "k.npz", **other)
    make = Maker()
    got = _store.cached("k", make, SHAPES)
    assert make.calls == 1
    np.testing.assert_array_equal(got["a/kernel"], make()["a/kernel"])


def test_unwritable_cache_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "jaxq").write_text("a file where the directory would be")
    monkeypatch.setattr(_store, "folder", lambda: tmp_path / "jaxq" / "models")
    assert _store.cached("k", Maker(), SHAPES).keys() == SHAPES.keys()
