"""The lists of choices: made from what validates them, and checked before slow work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jq
from jq.base.errors import UserError, known
from jq.driver.comparison.metrics import NAMES
from jq.target.rules import _keys
from jq.target.settings import Settings

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "scripts"))
from reference_tables import KINDS, markdown  # noqa: E402


def model(**more: object) -> jq.Model:
    return jq.Model(lambda p, x: x @ p["w"], {"w": np.eye(4, dtype=np.float32)}, (np.ones((2, 4)),))


@pytest.fixture
def no_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when a model is traced."""

    def traced(*_: object, **__: object) -> None:
        raise AssertionError("it was traced")

    monkeypatch.setattr("jq.frontends.source.trace_model", traced)


def test_settings_are_those_that_are_validated() -> None:
    found = {row["name"]: row for row in KINDS["settings"]()}
    assert set(found) == set(_keys(Settings().model_dump()))
    assert all(row["description"].endswith(".") for row in found.values())
    assert found["weights.block_size"]["allowed"] == "at least 1"
    assert found["placement"]["allowed"] == "early, hybrid, late"
    assert found["weights.format"]["allowed"].startswith("`float`, or")
    assert "percentile" in found["calibration.method"]["allowed"]
    assert found["recovery"]["type"] == "boolean or list"


def test_metrics_are_those_that_are_known() -> None:
    assert [row["name"] for row in KINDS["metrics"]()] == list(NAMES)


def test_every_row_has_a_sentence() -> None:
    for kind, rows in KINDS.items():
        assert rows()
        assert all(row["name"] and row["description"] for row in rows()), kind


def test_the_page_holds_the_tables() -> None:
    for kind in KINDS:
        page = "internals/iree.md" if kind == "defects" else "reference/settings.md"
        assert markdown(kind) in (DOCS / page).read_text(), f"write docs/{page} again: {kind}"


def test_what_was_meant() -> None:
    assert known("wieghts", ["weights", "sizes"]) == (
        "known: weights, sizes (did you mean 'weights'?)"
    )
    assert known("acc", ["accuracy", "cosine"]).endswith("(did you mean 'accuracy'?)")
    assert known("zzz", ["accuracy", "cosine"]) == "known: accuracy, cosine"
    many = [f"weight{i}" for i in range(40)]
    assert known("wieght7", many) == "did you mean 'weight7'? (40 names are known)"
    assert known("INT8", ["int4", "int8"]).endswith("(did you mean 'int8'?)")
    assert known("int8", ["int8-static", "mxint8", "int8-dynamic"]).endswith(
        "(did you mean 'int8-static' or 'int8-dynamic'?)"
    )
    assert known("cpu", ["llvm-cpu", "npu"]).endswith("(did you mean 'llvm-cpu'?)")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: jq.compile(model(), "int8-dinamic"), "did you mean 'int8-dynamic'"),
        (lambda: jq.compile(model(), target="llvm-cup"), "did you mean 'llvm-cpu'"),
        (lambda: jq.compile(model(), settings="weights.fromat=int4"), "mean 'weights.format'"),
        (lambda: jq.compile(model(), settings="weights.format=itn4"), "did you mean 'int4'"),
        (lambda: jq.compile(model(), rules="w: flaot"), "number format 'flaot'.*mean 'float'"),
        (lambda: jq.compile(model(), settings="recovery=smoth"), "did you mean 'smooth'"),
        (lambda: jq.compile(model(), settings="calibration.method=mni"), "calibration method"),
        (lambda: jq.compile(model(), rules="w: weights.fromat=int4"), "mean 'weights.format'"),
        (lambda: jq.compile(model(), emit="intger"), "did you mean 'integer'"),
        (lambda: jq.compare(model(), metric="acuracy"), "did you mean 'accuracy'"),
        (lambda: jq.compare(model(), metric="accuracy"), "accuracy needs labels"),
        (lambda: jq.search(model(), "accuracy>=0.9"), "accuracy needs labels"),
        (lambda: jq.search(model(), "cosine>=1.1"), "no cosine is above 1"),
        (lambda: jq.search(model(), "acc>=0.99"), "no figure 'acc'.*did you mean 'accuracy'"),
        (lambda: jq.search(model(), "cosine>=0.9", metric="cosin"), "did you mean 'cosine'"),
        (lambda: jq.search(model(), "cosine>=0.9", candidates=["itn8"]), "did you mean 'int8'"),
        (lambda: jq.search(model(), "cosine>=0.9", "int8-dinamic"), "did you mean 'int8-dynamic'"),
        (lambda: jq.search(model(), "cosine>=0.9", target="llvm-cup"), "did you mean 'llvm-cpu'"),
        (lambda: jq.search(model(), "cosine>=0.9", cost="siez"), "did you mean 'size'"),
        (lambda: jq.compile("jq.models:minlm"), "known: digits_cnn, .* mean 'minilm'"),
    ],
)
def test_names_are_checked_before_tracing(no_tracing, call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()


def test_jaxq_is_the_same_package() -> None:
    code = (
        "import jaxq, jq, jaxq.planning.planner as p, jq.planning.planner as q, importlib;"
        "assert jaxq is jq and p is q and p.__spec__.name == 'jq.planning.planner';"
        "assert importlib.import_module('jaxq.base.errors') is jq.base.errors;"
        "from jaxq.base.errors import UserError; assert UserError is jq.UserError;"
        "assert jaxq.compile is jq.compile"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_another_module_called_jq_gives_way() -> None:
    code = (
        "import sys, types; other = sys.modules['jq'] = types.ModuleType('jq');"
        "other.__file__ = '/nowhere/jq.so'; import jaxq as jq;"
        "assert jq is not other and callable(jq.compile) and jq.models.names()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_functions_of_the_command_line_are_at_the_top() -> None:
    assert all(callable(f) for f in (jq.bench, jq.explain, jq.report))
    assert {"bench", "explain", "report"} <= set(jq.__all__)


def test_results_show_themselves_at_a_prompt_and_in_a_notebook() -> None:
    given, quiet = model(), jq.base.progress.silent
    compiled = jq.compile(given, progress=quiet)
    plan, explained = jq.plan(given, progress=quiet), jq.explain(given, progress=quiet)
    shown = [
        (given, "<Model model: ("),
        (compiled, "<CompiledModel int8-dynamic for llvm-cpu"),
        (plan, "int8 per-channel symmetric"),
        (explained, "int8 per-channel symmetric"),
        (compiled.audit(), "1 of 1 products in integers"),
        (jq.compare(given, compiled), "Quantized against float, 2 samples"),
    ]
    for value, words in shown:
        assert words in repr(value)
        assert value._repr_html_().startswith("<pre>")


def test_an_artifact_is_replaced_when_that_is_asked_for(tmp_path: Path) -> None:
    compiled = jq.compile(model(), "float")
    compiled.save(tmp_path / "out")
    with pytest.raises(UserError, match="exists already.*overwrite=True"):
        compiled.save(tmp_path / "out")
    compiled.save(tmp_path / "out", overwrite=True)
    assert "<pre>" in compiled._repr_html_() and "Weights" in compiled.audit()._repr_html_()
