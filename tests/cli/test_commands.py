"""The commands on a small model in a user's own file, the way a user would call them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jq.base.errors import CompilerError, UserError
from jq.cli.app import main

pytestmark = pytest.mark.usefixtures("quick_xla")

Captured = pytest.CaptureFixture[str]
COMPILE = ("compile", "{source}:model", "-o", "none")

SOURCE = """
import numpy as np
import jq

rng = np.random.default_rng(0)


def mlp(params, x, scale):
    hidden = jnp.maximum(x @ params["first"]["kernel"] + params["first"]["bias"], 0)
    return {"y": hidden @ params["second"]["kernel"] * scale["s"]}


import jax.numpy as jnp


def model():
    print("a stray line")
    params = {
        "first": {
            "kernel": rng.standard_normal((32, 48), np.float32) / 6,
            "bias": np.ones(48, np.float32),
        },
        "second": {"kernel": rng.standard_normal((48, 16), np.float32) / 7},
    }
    scale = {"s": np.ones(1, np.float32)}
    samples = [(rng.standard_normal((4, 32), np.float32), scale) for _ in range(4)]
    return jq.Model(mlp, params, samples[0], calibration=samples, evaluation=samples)


def bare():
    built = model()
    return jq.Model(mlp, built.params, built.example_inputs)


def broken():
    raise ValueError("no such luck")
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("user") / "own_model.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture(scope="module")
def artifact(source: Path) -> Path:
    """Compiled once; nothing below writes into it."""
    out = source.parent / "out"
    assert main(["compile", f"{source}:model", "-o", str(out)]) == 0
    return out


def document(capsys: Captured, *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def refused(capsys: Captured, *arguments: str) -> str:
    """The one line of a user's mistake."""
    capsys.readouterr()
    assert main([*arguments, "-q"]) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if line.startswith("jaxq: error: ")]
    assert len(lines) == 1
    assert "Traceback" not in captured.err
    return lines[0]


def test_compile_says_what_it_did(source: Path, tmp_path: Path, capsys: Captured) -> None:
    out = tmp_path / "out"
    made = document(capsys, "compile", f"{source}:model", "-o", str(out), "--emit", "integer")
    assert b"StableHLO_v" in (out / "integer.portable.mlirbc").read_bytes()
    assert made["path"] == str(out)
    assert made["counts"]["integer"] == 2
    assert set(made["seconds"]) >= {"trace", "compile"}
    assert made["audit"] == document(capsys, "inspect", str(out))
    assert any("integer" in path.name for path in out.iterdir())
    assert main(["compile", f"{source}:model", "-o", str(out), "--force"]) == 0
    said = capsys.readouterr().out
    assert "runs on " in said  # the processor that it needs
    assert "2 of 2 products in integers (i8 x i8 -> i32)" in said
    assert "The outputs are close to the float model's" in said or "very close" in said
    assert "The worst layer is " in said and "It is no smaller than" in said
    assert said.rstrip().endswith(f"jaxq report {source}:model {out} -o report.html")
    measured = made["measured"]
    assert measured["worst_layer"]["name"] in ("first/kernel", "second/kernel")
    compared = document(capsys, "compare", f"{source}:model", str(out))
    assert compared["samples"] == measured["samples"]  # all four calls of four
    assert compared["outputs"][0]["sqnr_db"] == measured["sqnr_db"]


def test_what_cannot_be_measured_is_compiled_all_the_same(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "m.mlir"
    file.write_text("""func.func @main(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
      %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] :
        (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
      return %0 : tensor<4x4xf32>
    }""")
    arguments = ("compile", str(file), "-o", str(tmp_path / "out"))
    assert document(capsys, *arguments)["measured"] is None  # there are no samples


def test_a_comparison_that_fails_is_no_failure_of_the_artifact(
    source: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written and said to be good; exit code 0, and how to leave the comparison out."""

    def fails(*_: object) -> None:
        raise CompilerError("XLA cannot compile the program")

    monkeypatch.setattr("jq.reporting.measuring.glance.call_apart", fails)
    out = tmp_path / "out"
    assert main(["compile", f"{source}:model", "-p", "float", "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert "XLA cannot compile the program; --no-measure leaves this out" in said
    assert (out / "manifest.json").exists()


def test_symbolic_sizes(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "m.mlir"
    file.write_text("""func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
      %0 = stablehlo.tanh %x : tensor<?x4xf32>
      return %0 : tensor<?x4xf32>
    }""")
    assert "give --size arg0[0]=8" in refused(capsys, "explain", str(file))
    said = refused(capsys, "explain", str(file), "--size", "a=b")
    assert "size a is 'b'; it is a number from 0 to" in said
    assert document(capsys, "explain", str(file), "--size", "arg0[0]=3")["ops"] == []


def test_an_existing_directory_is_kept(source: Path, tmp_path: Path, capsys: Captured) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    for force in ([], ["--force"]):
        line = refused(capsys, "compile", f"{source}:model", "-o", str(mine), *force)
        assert str(mine) in line
    assert (mine / "thesis.txt").read_text() == "years of work"
    assert list(tmp_path.iterdir()) == [mine]


def test_another_run_at_once_is_told_of_the_option(
    source: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is made while this one compiles; Python's own option is no help here."""
    from jq import api

    real, output = api.compile, tmp_path / "once"

    def compile(*args: Any, **options: Any) -> Any:
        output.mkdir()
        return real(*args, **options)

    monkeypatch.setattr(api, "compile", compile)
    assert main(["compile", f"{source}:model", "-o", str(output), "-q"]) == 2
    said = capsys.readouterr().err
    assert "or give --force" in said and "overwrite" not in said


def test_force_replaces_an_artifact(artifact: Path, source: Path, capsys: Captured) -> None:
    assert "--force" in refused(capsys, "compile", f"{source}:model", "-o", str(artifact))
    made = document(capsys, "compile", f"{source}:model", "-o", str(artifact), "--force")
    assert made["path"] == str(artifact)


def test_inspect_shows_int8(artifact: Path, capsys: Captured) -> None:
    audit = document(capsys, "inspect", str(artifact))
    stored = {w["name"]: w for w in audit["weights"]}
    assert stored["first/kernel"]["format"] == "int8"
    assert stored["first/kernel"]["shape"] == [32, 48]
    # A byte a code; scales, sums and the bias that a kernel reads are a few words a channel.
    codes, word = 32 * 48, 4 * 48
    assert codes + word <= stored["first/kernel"]["stored_bytes"] <= codes + 4 * word
    types = {(c["lhs"], c["rhs"], c["acc"]) for c in audit["contractions"]}
    assert types == {("i8", "i8", "i32")}
    assert main(["inspect", str(artifact)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert audit["requirements"] and all(needed in said for needed in audit["requirements"])


def test_a_process_ends_in_silence(artifact: Path) -> None:
    """The bindings complain about what is alive when the interpreter has gone."""
    command = [sys.executable, "-m", "jq", "inspect", str(artifact), "-q", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_run_from_file_to_file(artifact: Path, tmp_path: Path, capsys: Captured) -> None:
    given, result = tmp_path / "in.npz", tmp_path / "out.npz"
    x = np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32)
    np.savez(given, arg0=x, arg1=np.full(1, 2, np.float32))
    arguments = ("run", str(artifact), "--inputs", str(given), "--outputs", str(result))
    shown = document(capsys, *arguments)
    (name,) = [output["name"] for output in shown["outputs"]]
    doubled = np.load(result)[name]
    np.savez(given, arg0=x, arg1=np.ones(1, np.float32))
    document(capsys, *arguments)
    np.testing.assert_array_equal(doubled, 2 * np.load(result)[name])


def test_arrays_of_others_are_kept(
    artifact: Path, source: Path, tmp_path: Path, capsys: Captured
) -> None:
    """Outputs of an earlier run alone are replaced without a word."""
    given, mine, notes = tmp_path / "in.npz", tmp_path / "mine.npz", tmp_path / "notes.npz"
    np.savez(given, arg0=np.ones((4, 32), np.float32), arg1=np.ones(1, np.float32))
    np.savez(mine, years=np.ones(1), y=np.ones(1))
    notes.write_text("of work")
    arguments = ("run", str(artifact), "--inputs", str(given), "--outputs")
    for kept in (mine, notes):
        assert "exists already" in refused(capsys, *arguments, str(kept))
    assert "years" in np.load(mine) and notes.read_text() == "of work"
    document(capsys, *arguments, str(mine), "--force")
    assert np.load(mine).files == ["y"]
    page = ("report", f"{source}:model", str(artifact), "-o", str(source), "--force")
    assert "would take the place of " in refused(capsys, *page)
    observe = ("calibrate", f"{source}:model", "-o", str(notes))
    assert "exists already" in refused(capsys, *observe)
    assert document(capsys, *observe, "--force")["path"] == str(notes)


def test_quickstart_makes_its_folder(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile(*_: Any, **__: Any) -> None:
        raise UserError("so far")

    monkeypatch.setattr("jq.api.compile", compile)
    assert "so far" in refused(capsys, "quickstart", "-o", str(tmp_path / "new/folder"), "-q")


def test_run_refuses_wrong_inputs(artifact: Path, tmp_path: Path, capsys: Captured) -> None:
    given, result = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(given, arg0=np.ones((4, 33), np.float32), arg1=np.ones(1, np.float32))
    line = refused(capsys, "run", str(artifact), "--inputs", str(given), "--outputs", str(result))
    assert "(4, 33)" in line
    assert not result.exists()
    same = refused(capsys, "run", str(artifact), "--inputs", str(given), "--outputs", str(given))
    assert "would take the place of " in same and "arg0" in np.load(given)


def test_compare_an_artifact(artifact: Path, source: Path, capsys: Captured) -> None:
    compared = document(capsys, "compare", f"{source}:model", str(artifact))
    (output,) = compared["outputs"]
    assert output["shape"] == [4, 16]
    assert output["cosine_min"] <= output["cosine"] <= 1
    assert output["cosine"] > 0.999  # 8 bits a value: noise of 1/256 of the range
    assert compared["layers"] == []


def test_compare_layers(artifact: Path, source: Path, capsys: Captured) -> None:
    of_artifact = document(capsys, "compare", f"{source}:model", str(artifact), "--layers")
    layers = {layer["name"]: layer for layer in of_artifact["layers"]}
    assert set(layers) == {"first/kernel", "second/kernel"}
    # The second contraction is the model's output, but for a constant factor.
    (output,) = of_artifact["outputs"]
    assert layers["second/kernel"]["sqnr_db"] == pytest.approx(output["sqnr_db"], abs=0.1)
    compiled_now = document(capsys, "compare", f"{source}:model", "--layers")
    assert compiled_now["layers"] == of_artifact["layers"]


def test_compare_layers_of_an_artifact_from_files_of_ones_own(
    source: Path, tmp_path: Path, capsys: Captured
) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'base = "int8-dynamic"\n[[rules]]\npattern = "first*"\noverride = { format = "float" }\n'
    )
    out = ("compile", f"{source}:model", "-o", str(tmp_path / "out"), "--pipeline", str(mine))
    assert document(capsys, *out)["counts"] == {"float": 1, "integer": 1}
    mine.unlink()
    arguments = ("compare", f"{source}:model", str(tmp_path / "out"), "--layers")
    first, second = document(capsys, *arguments)["layers"]
    assert first["isolated_max_abs_error"] == 0 < second["isolated_max_abs_error"]


def test_compare_by_a_metric(
    artifact: Path, source: Path, tmp_path: Path, capsys: Captured
) -> None:
    arguments = ("compare", f"{source}:model", str(artifact), "--metric", "top1_agreement")
    own = tmp_path / "own.py"
    own.write_text("def peak(outputs):\n    return abs(outputs['y']).max()\n")
    metrics = document(capsys, *arguments, "--metric", f"{own}:peak")["metrics"]
    assert list(metrics) == ["top1_agreement", "peak"]
    assert metrics["peak"]["quantized"] == pytest.approx(metrics["peak"]["float"], rel=0.05)
    assert "known: " in refused(capsys, *arguments[:-1], "acuracy")
    np.save(tmp_path / "labels.npy", np.zeros(3, np.int32))
    told = refused(capsys, *arguments[:-1], "accuracy", "--labels", str(tmp_path / "labels.npy"))
    assert "labels for" in told


def test_compare_compiles_and_takes_samples(source: Path, tmp_path: Path, capsys: Captured) -> None:
    x = np.random.default_rng(1).standard_normal((5, 4, 32)).astype(np.float32)
    np.savez(tmp_path / "in.npz", arg0=x, arg1=np.ones((5, 1), np.float32))
    compared = document(
        capsys,
        *("compare", f"{source}:bare", "--pipeline", "float"),
        *("--inputs", str(tmp_path / "in.npz")),
    )
    (output,) = compared["outputs"]
    exact = output["sqnr_db"] is None and output["max_abs_error"] == 0  # equal bits have no ratio
    assert exact or output["sqnr_db"] > 100  # float32: 24 bits


def test_explain_gives_a_row_an_op(source: Path, capsys: Captured) -> None:
    rules = ("--rule", "second*: float", "--rule", "third: format=int8")
    plan = document(capsys, "explain", f"{source}:model", *rules)
    rows = {op["name"]: op for op in plan["ops"]}
    assert set(rows) == {"first/kernel", "second/kernel"}
    assert rows["first/kernel"]["decision"] == "integer"
    assert rows["second/kernel"]["decision"] == "float"
    assert rows["second/kernel"]["reason"]
    assert plan["unused_rules"] == ["third"]


def test_explain_calibrates_unless_it_is_told_not_to(source: Path, capsys: Captured) -> None:
    static = ("--pipeline", "int8-static")
    plan = document(capsys, "explain", f"{source}:model", *static)
    assert plan["calibrated"].keys() == {"calls", "seconds"} and plan["calibrated"]["calls"] == 4
    for name in ("model", "bare"):  # also without data
        quick = document(capsys, "explain", f"{source}:{name}", *static, "--no-calibrate")
        assert "calibrated" not in quick and quick["ops"] == plan["ops"]
    assert main(["explain", f"{source}:model", *static]) == 0
    assert "calibrated on 4 calls in " in capsys.readouterr().err
    said = refused(capsys, "explain", f"{source}:model", "--pipeline", "auto", "--no-calibrate")
    assert "chooses formats by what it measures" in said


def test_calibrate_then_compile_with_its_ranges(
    source: Path, tmp_path: Path, capsys: Captured
) -> None:
    ranges = tmp_path / "ranges.json"
    assert document(capsys, "calibrate", f"{source}:model", "-o", str(ranges))["tensors"] == 2
    arguments = ("compile", f"{source}:bare", "--pipeline", "int8-static", "-o")
    static = (*arguments, str(tmp_path / "a"), "--set", "activations.mode=static")
    assert "calibration" in refused(capsys, *static)
    made = document(capsys, *arguments, str(tmp_path / "b"), "--ranges", str(ranges))
    assert made["counts"]["integer"] == 2
    assert not (tmp_path / "a").exists()


def test_bench(artifact: Path, capsys: Captured) -> None:
    arguments = ("bench", str(artifact), "--threads", "1", "--seconds", "0.1")
    timing = document(capsys, *arguments, "--against", str(artifact))
    assert 0 < timing["min_ms"] <= timing["median_ms"] <= timing["p90_ms"]
    assert timing["ratio"] == timing["against"]["median_ms"] / timing["median_ms"]
    assert timing["threads"] == 1
    assert timing["peak_rss_bytes"] > 1 << 20


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("explain", "none.py:model"), "none.py"),
        (("explain", "{source}:nothing"), "nothing"),
        (("explain", "{source}:broken"), "ValueError: no such luck"),
        (("explain", "{source}:model", "--pipeline", "int9"), "unknown pipeline 'int9'; known: "),
        (("explain", "{source}:model", "--target", "moon"), "unknown target 'moon'; known: "),
        (("explain", "{source}:model", "--set", "weights.formt=int8"), "weights.formt"),
        (("explain", "{source}:model", "--set", "weights.format=int9"), "int9"),
        (("explain", "{source}:model", "--set", "weights.format"), "key=value"),
        (("explain", "{source}:model", "--rule", "nonsense"), "nonsense"),
        (("explain", "{source}:model", "--set", "op_types=dott"), "unknown op 'dott'"),
        (("compile", "{source}:model", "-o", "none", "--rule", "third: float"), "'third' matches"),
        (("compile", "{source}:model", "-o", "none", "--emit", "asm"), "unknown level 'asm'"),
        ((*COMPILE, "--stablehlo-version=1.9.0"), "--emit integer"),
        ((*COMPILE, "--emit=integer", "--stablehlo-version=99.0.0"), "99.0.0 cannot be written"),
        (("compile", "{source}:model", "-o", "no/where"), "no such folder: no"),
        (("compile", "{source}:model", "-o", "-"), "standard output"),
        (("run", "{source}", "--inputs", "none", "--outputs", "-"), "standard output"),
        ((*COMPILE, "--save-pipeline", "mixed.txt"), "end its name in .toml"),
        (("check", "{source}:model", "--rule", "third: float"), "'third' matches no op"),
        (("bench", "nowhere", "--ssh", "ssh"), "nowhere"),
        (("bench", "nowhere", "--ssh", "rsh"), "--ssh has no use without --on"),
        (("calibrate", "a", "-o", "b", "--merge", "--data", "c"), "--data has no use with --merge"),
        (("quantize", "nowhere", "out", "--type", "int4"), "no such file [nowhere]"),
        (("quantize", "nowhere", "out", "--type", "q4_k", "--pieces", "2"), "without --importance"),
        (("perplexity", "nowhere", "text", "--limit", "-4"), "greater than or equal to 2"),
        (("search", "{source}:model", "--budget", "size<=0.3", "--cost", ""), "unknown cost ''"),
        (("search", "{source}:model", "--budget=size<=0.3", "--candidates=float,"), "''"),
        (("compare", "{source}:model", "--window", "0"), "--window is for language models"),
        (("search", "{source}:model", "--budget", "size<=0.3", "--dask", ""), "no workers are ''"),
        (("inspect", "{source}"), "own_model.py"),
        (("inspect", "nowhere"), "nowhere"),
    ],
)
def test_mistakes_are_one_line(
    arguments: tuple[str, ...], said: str, source: Path, capsys: Captured
) -> None:
    assert said in refused(capsys, *(a.format(source=source) for a in arguments))


def test_what_is_given_is_refused_before_long_work(
    artifact: Path, source: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules, labels, files of samples and outputs: nothing is calibrated, searched or compared."""
    for name in (
        *("jq.driver.stages.calibrate_job", "jq.mixed_precision.run.make_problem"),
        *("jq.api.compiling.compare_compiled", "jq.reporting.report.facts.compare_layers"),
    ):
        monkeypatch.setattr(name, pytest.fail)
    model, page = f"{source}:model", str(tmp_path / "page")
    for name, labels in (("few", np.zeros(3, int)), ("text", np.array(["a"] * 16))):
        np.save(tmp_path / f"{name}.npy", labels)
        given = ("--labels", str(tmp_path / f"{name}.npy"))
        said = "16" if name == "few" else "<U1 are no classes"
        assert said in refused(capsys, "search", model, "--budget=accuracy>=0.5", *given)
        for compared in (("compare", model), ("report", model, str(artifact), "-o", page)):
            assert said in refused(capsys, *compared, *given)
    x = np.zeros((2, 4, 32), np.float32)
    x[1] = np.nan
    np.savez(nan := tmp_path / "nan.npz", arg0=x, arg1=np.ones((2, 1), np.float32))
    given = ("report", model, str(artifact), "-o", page, "--inputs", str(nan))
    assert "NaN or infinity in sample 1 of the data to compare on" in refused(capsys, *given)
    rule = ("--rule", "third: float")
    for command in (("search", model, "--budget=size<=0.3"), (*COMPILE, "-p", "int8-static")):
        command = tuple(part.format(source=source) for part in command)
        assert "'third' matches no op" in refused(capsys, *command, *rule)
    assert "not a file" in refused(capsys, *command, "--calibration", str(tmp_path))
    twice = ("report", model, str(artifact), "-o", page, "--model-explorer", page)
    assert "give two names" in refused(capsys, *twice)
    assert "--format is of a ranking" in refused(
        capsys, "compare", model, str(artifact), "--format=csv"
    )
    monkeypatch.setattr("jq.frontends.source._traced", pytest.fail)
    export = ("export", model, "-o", str(tmp_path / "m.tosa"))
    searching = ("search", model, "--budget=size<=0.3")
    device = [(name, model, "-t", "ethos-u55") for name in ("check", "estimate")]
    for sized in (command, searching, export, ("compare", model), ("explain", model), *device):
        for wrong in (("-p", "int9"), ("--set", "int9=1")):
            assert "int9" in refused(capsys, *sized, "--size", "b=8", *wrong)
    for place in ("api.compiling", "reporting.report.facts", "reporting.measuring.ranking"):
        monkeypatch.setattr(f"jq.{place}.trace", pytest.fail)
    for wrong in (("-p", "int9"), ("--rule", "a: weights.format=int9"), ("--set", "int9=1")):
        assert "int9" in refused(capsys, "compare", model, *wrong)
    absent = ("--inputs", "absent.npz")
    for command in (("report", model, str(artifact), "-o", page), ("compare", model, "--bench")):
        more = (str(artifact),) if "--bench" in command else ()
        assert "no such file [absent.npz]" in refused(capsys, *command, *more, *absent)


def test_options_that_an_artifact_has_no_use_for(
    artifact: Path, source: Path, capsys: Captured
) -> None:
    given = ("compare", f"{source}:model", str(artifact), "-p", "float", "--set", "min_elements=2")
    assert main([*given]) == 0
    assert f"warning: --pipeline, --set: no use, {artifact}" in capsys.readouterr().err


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C while iree-compile runs, which is a process of its own."""
    folder = tmp_path / "tools"
    folder.mkdir()
    slow = folder / "slow.py"
    slow.write_text(
        "import sys, time, threading, os, signal\n"
        "import jq.base.guard.worker  # names subprocess.Popen in annotations\n"
        "from jq.iree import compiler\n"
        "from jq.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it\n"
        "start = compiler.subprocess.Popen\n"
        "def popen(*a, **k):\n"
        "    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    return start(*a, **k)\n"
        "compiler.subprocess.Popen = popen\n"
        "main()\n"
    )
    (tmp_path / "own_model.py").write_text(SOURCE)
    before = set(tmp_path.iterdir())
    done = subprocess.run(
        [
            *(sys.executable, slow, "compile", f"{tmp_path}/own_model.py:model"),
            *("-o", tmp_path / "out", "--no-cache"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr.splitlines()[-1] == "jaxq: interrupted; nothing was written"
    assert "Traceback" not in done.stderr
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("writes", [0, 1])  # the compiler's input, then the module
def test_a_full_disk_leaves_nothing(
    writes: int, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    put, done = Path.write_bytes, []

    def write(path: Path, data: bytes) -> int:
        done.append(path)
        if len(done) > writes:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return put(path, data)

    monkeypatch.setattr(Path, "write_bytes", write)
    arguments = ("compile", f"{source}:model", "-o", str(tmp_path / "out"), "--no-cache")
    line = refused(capsys, *arguments)
    assert "No space left on device" in line
    assert list(tmp_path.iterdir()) == []
