"""Ranges files are checked when they are read, and belong to one model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.planning.calibration.observer import Range
from jq.planning.calibration.ranges import Ranges

pytestmark = pytest.mark.usefixtures("quick_xla")

RNG = np.random.default_rng(4)
W = RNG.standard_normal((16, 16)).astype(np.float32)
X = RNG.standard_normal((4, 16)).astype(np.float32)


def model(weight: np.ndarray = W, shape: int = 4) -> jq.Model:
    x = np.resize(X, (shape, 16))
    return jq.Model(lambda p, x: x @ p["w"], {"w": weight}, (x,), calibration=[(x,)])


@pytest.fixture(scope="module")
def ranges() -> Ranges:
    return jq.calibrate(model())


def change(path: Path, **keys: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


def array(**keys: Any) -> dict[str, Any]:
    return {"w:0": [{"type": "int64", "shape": [2051], "first": 0, "values": "1", **keys}]}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "inverted": ({"sites": {"w:0": [1.0, -1.0]}}, r"the range \[1.0, -1.0\] is empty \[w:0\]"),
    "nan": ({"sites": {"w:0": [float("nan"), 1.0]}}, "is not finite"),
    "infinite": ({"sites": {"w:0": [0, float("inf")]}}, "is not finite"),
    "beyond float32": ({"sites": {"w:0": [0, 1e300]}}, "exceeds float32"),
    "huge": ({"sites": {"w:0": [0, 10**400]}}, "not a file of ranges"),
    "text": ({"sites": {"w:0": ["a", 1]}}, "not a file of ranges"),
    "number as text": ({"sites": {"w:0": ["-1", "1"]}}, "'-1' is no number"),
    "truth": ({"sites": {"w:0": [False, True]}}, "False is no number"),
    "shape as text": ({"statistics": array(shape=["2051"])}, "not those of percentile"),
    "first as text": ({"statistics": array(first="0")}, "not a file of ranges"),
    "smoothing as text": ({"smoothing": {"w": ["1"]}}, "'1' is no number"),
    "shards as text": ({"shards": {"count": "2", "seen": [1, 2]}}, "not a file of ranges"),
    "half a shard": ({"shards": {"count": 2, "seen": [1.5, 2]}}, "not a file of ranges"),
    "three": ({"sites": {"w:0": [0, 1, 2]}}, "not a file of ranges"),
    "no dict": ({"sites": [1]}, "of another kind than `jaxq calibrate` writes"),
    "other values": ({"sites": {"w:0": [-1.0, 1.0]}}, "the statistics and the range differ"),
    "method": ({"method": "no such"}, "unknown calibration method"),
    "other method": ({"method": "average"}, "not those of average"),
    "samples": ({"samples": "many"}, "is of 'many' samples"),
    "no samples": ({"samples": 0}, "is of 0 samples"),
    "fewer": ({"samples": -1}, "is of -1 samples"),
    "half a sample": ({"samples": 1.5}, "is of 1.5 samples"),
    "true": ({"samples": True}, "is of True samples"),
    "old": ({"schema": 1}, "ranges of schema 1, this reads 2; make them again"),
    "negative": ({"schema": -1}, "ranges of schema -1"),
    "type": ({"statistics": array(type="object")}, "no statistics are 'object'"),
    "vast": ({"statistics": array(shape=[1 << 60])}, "not those of percentile"),
    "negative shape": ({"statistics": array(shape=[-1])}, "not those of percentile"),
    "outside": ({"statistics": array(first=-1)}, "do not fit"),
    "behind": ({"statistics": array(first=2051)}, "do not fit"),
    "empty": ({"statistics": array()}, "counts nothing"),
    "wide bins": ({"statistics": array(values="9999 0 0 1")}, "bins of 2.9999"),
    "unknown site": ({"statistics": {"x:0": array()["w:0"]}}, "statistics without a range"),
    "smoothing": ({"smoothing": {"w": [2000]}}, "smoothing"),
    "no model": ({"model": None}, "of another model"),
    "other model": ({"model": "0" * 64}, "of another model"),
    "empty model": ({"model": ""}, "of another model"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file(name: str, ranges: Ranges, tmp_path: Path) -> None:
    path = tmp_path / "ranges.json"
    ranges.save(path)
    keys, message = BAD[name]
    change(path, **keys)
    with pytest.raises(UserError, match=message) as info:
        jq.plan(model(), pipeline="int8-static", ranges=path)
    assert str(path) in str(info.value)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"\xff\xfe", b"[" * 100_000])
def test_no_ranges_at_all(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "ranges.json").write_bytes(content)
    with pytest.raises(UserError, match="is not a file of ranges|is no UTF-8 text"):
        Ranges.load(tmp_path / "ranges.json")


def test_they_serve_the_model_that_they_are_of(ranges: Ranges, tmp_path: Path) -> None:
    path = tmp_path / "ranges.json"
    ranges.save(path)
    assert Ranges.load(path).model == ranges.model
    assert jq.plan(model(), pipeline="int8-static", ranges=path).has_static


@pytest.mark.parametrize("other", [model(W + 1), model(shape=8)])
def test_of_other_weights_or_shapes(other: jq.Model, ranges: Ranges) -> None:
    with pytest.raises(UserError, match="the ranges are of another model"):
        jq.plan(other, pipeline="int8-static", ranges=ranges)


def test_made_by_hand(ranges: Ranges) -> None:
    """In Python they need no model; they must make sense all the same."""
    own = Ranges({"w:0": Range(-3.0, 3.0)})
    assert jq.plan(model(), pipeline="int8-static", ranges=own).has_static
    with pytest.raises(UserError, match="is empty"):
        jq.plan(model(), pipeline="int8-static", ranges=Ranges({"w:0": Range(3.0, -3.0)}))
    with pytest.raises(UserError, match="of different models"):
        ranges.merge(replace(ranges, model="0"))
