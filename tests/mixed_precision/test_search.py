"""The whole search on a small classifier, through the command line and in Python."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jq
from jq.cli.app import main
from jq.cli.search import split
from jq.mixed_precision import switch
from jq.mixed_precision.evaluate import Judge

Captured = pytest.CaptureFixture[str]
SOURCE = """
import jax.numpy as jnp
import numpy as np
import jq

rng = np.random.default_rng(0)
PARAMS = {
    "first": rng.standard_normal((32, 64)).astype(np.float32) / 6,
    "second": rng.standard_normal((64, 64)).astype(np.float32) / 8,
    "head": rng.standard_normal((64, 10)).astype(np.float32) / 8,
}
SAMPLES = [(rng.standard_normal((16, 32)).astype(np.float32),) for _ in range(6)]


def classify(params, x):
    h = jnp.maximum(x @ params["first"], 0)
    return jnp.maximum(h @ params["second"], 0) @ params["head"]


def labels():
    return np.concatenate([np.asarray(classify(PARAMS, x)).argmax(1) for (x,) in SAMPLES[2:]])


def model():
    return jq.Model(
        classify, PARAMS, SAMPLES[0], calibration=SAMPLES[:2], evaluation=SAMPLES[2:], labels=labels
    )


def margin(outputs):
    first, second = np.sort(outputs, 1)[:, -1], np.sort(outputs, 1)[:, -2]
    return float((first - second).mean())
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("user") / "classifier.py"
    path.write_text(SOURCE)
    return path


def document(capsys: Captured, *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def refused(capsys: Captured, *arguments: object) -> str:
    capsys.readouterr()
    assert main([*map(str, arguments), "-q"]) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("pipeline", ["int8-dynamic", "int8-static"])
def test_the_file_makes_the_same_model_again(
    source: Path, tmp_path: Path, capsys: Captured, pipeline: str
) -> None:
    mixed, out = tmp_path / "mixed.toml", tmp_path / "out"
    arguments = ("search", f"{source}:model", "--budget", "sqnr_db>=20", "-o", mixed)
    found = document(capsys, *arguments, "--pipeline", pipeline, "--set", "min_elements=2")
    assert found["path"] == str(mixed) and found["reached"]["sqnr_db"] >= 20
    assert {"int4", pipeline} <= found["formats"].keys()
    document(capsys, "compile", f"{source}:model", "--pipeline", mixed, "-o", out)
    compared = document(capsys, "compare", f"{source}:model", out)
    assert compared["outputs"] == found["comparison"]["outputs"]
    assert compared["metrics"] == found["comparison"]["metrics"]
    assert tomllib.loads(mixed.read_text())["settings"] == {"min_elements": 2}
    chosen = [p for p in found["frontier"] if p["chosen"]]
    assert len(chosen) == 1 and chosen[0]["size"] == pytest.approx(found["size"], rel=0.2)
    assert "--force" in refused(capsys, *arguments)


def test_a_base_that_is_a_file(source: Path, tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "own").mkdir()
    base = tmp_path / "own" / "base.toml"
    base.write_text('base = "int8-dynamic"\n[[rules]]\npattern = "head"\noverride = {}\n')
    mixed = tmp_path / "mixed.toml"
    arguments = ("search", f"{source}:model", "--budget", "cosine>=0.97", "--pipeline", base)
    found = document(capsys, *arguments, "-o", mixed, "--candidates", "int4,float")
    assert tomllib.loads(mixed.read_text())["base"] == "own/base.toml"
    assert [layer["name"] for layer in found["layers"]] == ["first", "second"]  # a rule has head
    rows = document(capsys, "explain", f"{source}:model", "--pipeline", mixed)["ops"]
    assert {r["name"]: r["weights"] for r in rows}["head"] == "int8 per-channel symmetric"


def test_budgets_of_all_kinds(source: Path, capsys: Captured) -> None:
    arguments = ("search", f"{source}:model", "--candidates", "float,int8-dynamic,int4")
    sized = document(capsys, *arguments, "--budget", "size<=0.27")
    assert sized["size"] <= 0.27 and sized["formats"].keys() == {"int8-dynamic", "int4"}
    dropped = document(capsys, *arguments, "--budget", "accuracy_drop<=4")
    assert dropped["reached"]["accuracy_drop"] <= 4
    both = ("--budget", f"{source}:margin>=0.05", "--budget", "work<=0.07", "--cost", "work")
    own = document(capsys, *arguments, *both)
    assert own["reached"]["margin"] >= 0.05 and own["reached"]["work"] <= 0.07
    limits = ("sqnr_db>=10", "size<=0.5", "work<=0.2")  # weights alone in low bits keep to two
    several = document(capsys, *arguments[:2], *(a for b in limits for a in ("--budget", b)))
    reached = several["reached"]
    assert reached["sqnr_db"] >= 10 and reached["size"] <= 0.5 and reached["work"] <= 0.2


def test_a_budget_of_size_runs_no_choice(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Judge, "_run", lambda *a: pytest.fail("nothing is to be judged"))
    candidates = ["int8-dynamic", "int4"]
    found = jq.search(f"{source}:model", "size<=0.27", candidates=candidates, samples=1)
    assert found.resources["size"] <= 0.27


def test_what_cannot_be_met(
    source: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixed = tmp_path / "mixed.toml"
    arguments = ("search", f"{source}:model", "-o", mixed, "--candidates", "int8-dynamic,int4")
    told = refused(capsys, *arguments, "--budget", "sqnr_db>=90")
    assert "cannot be met" in told and "int8-dynamic" in told
    with monkeypatch.context() as patched:  # nothing is measured before what is counted
        patched.setattr("jq.mixed_precision.run.sensitivities", pytest.fail)
        told = refused(capsys, *arguments, "--budget", "size<=0.01")
        assert "size<=0.01 cannot be met; the least of all candidates is 0." in told
        assert "work<=0.01 cannot" in refused(capsys, *arguments, "--budget", "work<=0.01")
    both = ("--budget", "sqnr_db>=35", "--budget", "size<=0.15")
    assert "size<=0.15 cannot be met" in refused(capsys, *arguments, *both)
    rule = ("--budget", "size<=0.27", "--rule", "nothing: float")
    assert "rule 'nothing' matches no op" in refused(capsys, *arguments, *rule)
    assert "no figure 'recall'" in refused(capsys, *arguments, "--budget", "recall>=0.5")
    with monkeypatch.context() as before_any_work:
        before_any_work.setattr("jq.mixed_precision.run.prepare_job", None)
        told = refused(capsys, *arguments, "--budget", "match>=0.9")
        assert "match is of integer outputs" in told
        of_size = (*arguments, "--budget", "size<=0.27", "--state")
        before = source.read_bytes()  # a file that is not ours would be replaced
        assert "holds no measurements" in refused(capsys, *of_size, source)
        assert source.read_bytes() == before
        assert "is a directory" in refused(capsys, *of_size, tmp_path)
        assert "no such folder" in refused(capsys, *of_size, tmp_path / "none" / "state.json")
        assert not (tmp_path / "none").exists()
    one = (*arguments[:4], "--candidates", "int8-dynamic", "--budget", "cosine>=0.5")
    assert "do not differ" in refused(capsys, *one)
    assert not mixed.exists()


def test_an_interrupted_search_goes_on(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state.json"
    measured, noise = [], switch.noise

    def counted(*arguments: Any) -> float:
        if len(measured) == 5:
            raise KeyboardInterrupt
        measured.append(noise(*arguments))
        return measured[-1]

    monkeypatch.setattr(switch, "noise", counted)
    options = {"state": state, "candidates": ["float", "int8-dynamic", "int4"]}
    with pytest.raises(KeyboardInterrupt):
        jq.search(f"{source}:model", "sqnr_db>=20", **options)
    kept = json.loads(state.read_text())["values"]
    assert sorted(kept.values()) == sorted(measured)
    measured.clear()
    found = jq.search(f"{source}:model", "sqnr_db>=20", **options)
    assert len(measured) == 4  # of nine
    assert found.comparison.outputs[0].sqnr_db >= 20
    for change in ("damage", "code", "another model"):
        measured.clear()
        if change == "damage":
            state.write_text(state.read_text()[:60])
        elif change == "code":
            monkeypatch.setattr("jq.artifact.store.versions", lambda: ["of another code"])
        else:
            source = source.with_name("other.py")
            source.write_text(SOURCE.replace("default_rng(0)", "default_rng(1)"))
        with pytest.raises(KeyboardInterrupt):
            jq.search(f"{source}:model", "sqnr_db>=20", **options)
        assert len(measured) == 5  # nothing was taken from the file


def test_latency_is_measured(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((64, 64), np.float32) for _ in range(2)]  # no code is exact
    x = (rng.standard_normal((4, 64), np.float32),)
    model = jq.Model(lambda w, x: x @ w[0] @ w[1], weights, x)
    options = {"candidates": ["float", "int8-dynamic"], "state": tmp_path / "state.json"}
    found = jq.search(model, "latency<=1000ms", **options)
    assert found.resources["latency"] > 0
    assert found.formats == {"float": 2}  # the most exact one within it
    kept = json.loads((tmp_path / "state.json").read_text())["values"]
    (measured,) = (value for key, value in kept.items() if key.startswith("latency"))
    shares = [layer.options for layer in found.layers]  # of the model in float, which was measured
    assert measured > 0 and all(0 < o["float"]["latency"] < 1 for o in shares)
    assert sum(o["float"]["latency"] for o in shares) == pytest.approx(1)  # there is nothing else
    assert all(o["int8-dynamic"]["latency"] < o["float"]["latency"] for o in shares)


def test_names_on_the_command_line() -> None:
    assert split(["float, int4", "a: x=1, y=2"]) == ["float", "int4", "a: x=1, y=2"]


def test_the_result_prints_its_frontier(source: Path) -> None:
    found = jq.search(f"{source}:model", "cosine>=0.9", candidates=["int8-dynamic", "int4"])
    assert "predicted SQNR dB" in str(found) and "3 int4" in str(found)
    assert np.isfinite(found.reached["cosine"])
    assert found.compiled(np.zeros((16, 32), np.float32)).shape == (16, 10)


def test_any_number_of_workers_finds_the_same(
    source: Path, tmp_path: Path, capsys: Captured
) -> None:
    from tests.support.jobs import cluster

    pytest.importorskip("distributed")
    arguments = ("search", f"{source}:model", "--candidates", "float,int8-dynamic,int4")
    found, measured = [], []
    with cluster(tmp_path / "dask") as (address, _):
        for i, where in enumerate([(), ("--jobs", 2), ("--dask", address)]):
            state = tmp_path / f"{i}.json"
            rest = ("--budget", "sqnr_db>=20", "--state", state, *where)
            found.append({**document(capsys, *arguments, *rest), "seconds": None})
            measured.append(json.loads(state.read_text()))
    assert found[0] == found[1] == found[2]
    assert measured[0] == measured[1] == measured[2]
    assert "give one" in refused(
        capsys, *arguments, "--budget", "size<=1", "-j", 2, "--ray", "auto"
    )
