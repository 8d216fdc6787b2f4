"""Calibration and comparison by other processes: equal to those of one, and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jq
from jq.base.errors import UserError
from jq.cli.app import main

RNG = np.random.default_rng(5)
SAMPLES = [(RNG.standard_normal((4, 16)).astype(np.float32),) for _ in range(5)]
PARAMS = {
    "a": RNG.standard_normal((16, 32)).astype(np.float32) / 4,
    "b": RNG.standard_normal((32, 8)).astype(np.float32) / 4,
}


def classify(params: Any, x: Any) -> Any:
    return jnp.maximum(x @ params["a"], 0) @ params["b"]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> jq.Model:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return jq.Model(classify, PARAMS, SAMPLES[0], calibration=SAMPLES, evaluation=SAMPLES)


def test_ranges(model: jq.Model, tmp_path: Path) -> None:
    method = ["calibration.method=mse"]
    whole = jq.calibrate(model, settings=method)
    assert jq.calibrate(model, settings=method, workers=2).text() == whole.text()
    kept = sorted((tmp_path / "jaxq" / "store").glob("job-*"))
    assert len(kept) == len(SAMPLES)
    kept[0].unlink()
    kept[1].write_bytes(kept[1].read_bytes()[:-1] + b"!")  # damaged: as good as none
    parts = [jq.calibrate(model, settings=method, shard=f"{i}/2", workers=2) for i in (2, 1)]
    assert parts[0].merge(parts[1]).text() == whole.text()
    bad = [*SAMPLES[:2], (np.full((4, 16), np.nan, np.float32),)]
    with pytest.raises(UserError, match="sample 2"):
        jq.calibrate(model, bad, workers=2)
    with pytest.raises(UserError, match="lack shard 1/2"):
        jq.compile(model, "int8-static", ranges=parts[0])


def test_outputs(model: jq.Model, tmp_path: Path) -> None:
    compiled = jq.compile(model, "int8-dynamic")
    here = jq.compare(model, compiled).to_dict()
    assert jq.compare(model, compiled, workers=2).to_dict() == here
    compiled.save(tmp_path / "out")
    assert jq.compare(model, jq.load(tmp_path / "out"), workers=2).to_dict() == here


def test_files_of_shards(
    model: jq.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in (1, 2):
        jq.calibrate(model, shard=f"{i}/2").save(tmp_path / f"{i}.json")
    files = [str(tmp_path / f"{i}.json") for i in (2, 1)]
    capsys.readouterr()
    merge = ["calibrate", "--merge", *files, "-o", str(tmp_path / "all.json"), "--json"]
    assert main(merge) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == len(SAMPLES)
    jq.calibrate(model).save(tmp_path / "whole.json")
    assert (tmp_path / "all.json").read_text() == (tmp_path / "whole.json").read_text()
    assert main(["calibrate", "--merge", files[0], files[0], "-o", str(tmp_path / "x")]) == 2
    assert "2/2 is there twice" in capsys.readouterr().err
    assert main(["calibrate", *files, "-o", str(tmp_path / "x")]) == 2
    assert "one model" in capsys.readouterr().err
