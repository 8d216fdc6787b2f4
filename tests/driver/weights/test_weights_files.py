"""Weights beside the module: the same results from either archive, and every damage refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import jq
from jq.artifact.parameters import write_parameters
from jq.base.system.files import sha256
from jq.formats.tensor import Deferred

RNG = np.random.default_rng(0)
PARAMS = {f"w{i}": RNG.standard_normal((64, 64)).astype(np.float32) for i in range(2)}
X = RNG.standard_normal((3, 64)).astype(np.float32)
MODEL = jq.Model(lambda p, x: (x @ p["w0"]) @ p["w1"], PARAMS, (X,))


def build(archive: str, **settings):
    chosen = {"storage.inline_limit": 0, "storage.archive": archive, **settings}
    return jq.compile(MODEL, "int8-weight-only", settings=chosen)


@pytest.fixture(scope="module")
def compiled():
    return {archive: build(archive) for archive in ("irpa", "safetensors")}


@pytest.fixture(params=["irpa", "safetensors"])
def artifact(request, compiled, tmp_path):
    path = compiled[request.param].save(tmp_path / "artifact")
    return path, path / f"weights.{request.param}"


def test_both_archives_hold_the_same_model(compiled, artifact):
    path, weights = artifact
    loaded = jq.load(path)
    inside = build("irpa", **{"storage.inline_limit": 1 << 30})
    assert inside.parameters is None
    assert np.array_equal(loaded(X), inside(X))
    assert loaded.audit().verified and weights.is_file()
    again = jq.load(loaded.save(path.parent / "again"))
    assert np.array_equal(again(X), inside(X))


def test_weights_in_another_order_are_made_as_they_are_written(compiled, artifact):
    """The kernel wants [out, in]: no copy is held for it."""
    for key, array in compiled["irpa"].parameters.items():
        assert isinstance(array, Deferred) or not key.endswith(":codes"), key


def test_a_changed_byte_is_refused(artifact):
    path, weights = artifact
    data = bytearray(weights.read_bytes())
    data[-100] ^= 1
    weights.write_bytes(data)
    with pytest.raises(jq.UserError, match="checksum differs"):
        jq.load(path)


def test_a_cut_file_is_refused(artifact):
    path, weights = artifact
    weights.write_bytes(weights.read_bytes()[:-64])
    with pytest.raises(jq.UserError, match="bytes instead of"):
        jq.load(path)


def test_a_lost_file_is_refused(artifact):
    path, weights = artifact
    weights.unlink()
    with pytest.raises(jq.UserError, match=f"lacks {weights.name}"):
        jq.load(path)


def test_the_weights_of_another_model_are_refused(artifact):
    path, weights = artifact
    arrays = {"w0:codes": np.zeros((64, 32), np.int8)}
    write_parameters(weights, arrays)
    manifest = json.loads((path / "manifest.json").read_text())

    described = {"bytes": weights.stat().st_size, "sha256": sha256(weights)}
    manifest["files"][weights.name] = described  # even with a checksum to match
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(jq.UserError, match="parameter"):
        jq.load(path)


def test_exchanged_files_are_refused(compiled, tmp_path):
    first = compiled["irpa"].save(tmp_path / "first")
    other = jq.Model(MODEL.fn, {k: 2 * v for k, v in PARAMS.items()}, MODEL.example_inputs)
    chosen = {"storage.inline_limit": 0}
    second = jq.compile(other, "int8-weight-only", settings=chosen).save(tmp_path / "second")
    shutil.copy(second / "weights.irpa", first / "weights.irpa")
    with pytest.raises(jq.UserError, match="checksum differs"):
        jq.load(first)
