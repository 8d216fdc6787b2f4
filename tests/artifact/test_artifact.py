from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import jq
from jq.artifact import save
from jq.artifact.description import describe_build
from jq.artifact.load import Artifact, load_artifact, read_manifest
from jq.artifact.manifest import SCHEMA_VERSION, Manifest, Tensor
from jq.artifact.parameters import write_parameters
from jq.artifact.programs import TargetProgram
from jq.artifact.save import check_output, save_artifact
from jq.base.errors import JqError, UserError
from jq.base.system import folders
from jq.base.system.files import sha256
from jq.base.tree import check_depth, check_structure, structure_of, unflatten
from jq.driver.loading import load
from jq.iree import cpu
from jq.iree.compiler import HOST_FLAGS, compile_module
from jq.iree.handover import handover
from jq.iree.runtime import Executable
from jq.target.target import Target
from tests.iree.helpers import make_program

RNG = np.random.default_rng(5)
W = RNG.integers(-9, 9, (64, 32)).astype(np.float32)
X = RNG.integers(-9, 9, (4, 64)).astype(np.float32)
DENSE = """func.func public @main(%x: tensor<4x64xf32>, %w: tensor<64x32xf32>) -> tensor<4x32xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] {jq.name = "dense/w"}
    : (tensor<4x64xf32>, tensor<64x32xf32>) -> tensor<4x32xf32>
  return %0 : tensor<4x32xf32>
}"""


def build(*, inline: bool = False) -> Artifact:
    program = make_program(DENSE, {"dense/w": W})
    given = handover(program, inline_limit=(1 << 20) if inline else 0)
    built = compile_module(given.bytecode)
    target = Target(name="here", driver="local-sync", flags=HOST_FLAGS)
    ops = [{"name": "dense/w", "op": "dot_general", "decision": "float"}]
    manifest = describe_build(
        program=program, source=program, pipeline="float", target=target, ops=ops
    )
    made = TargetProgram("here", "none", built.vmfb, built.program or "")
    return Artifact(manifest, (made,), given.parameters or None, {"float": program})


@pytest.fixture(scope="module")
def made() -> Artifact:
    return build()


@pytest.fixture
def saved(made: Artifact, tmp_path: Path) -> Path:
    return save_artifact(tmp_path / "out", made)


def answer(found: Artifact) -> np.ndarray:
    return Executable.load(found.vmfb, found.parameters)(X)[0]


def test_round_trip(made: Artifact, saved: Path) -> None:
    found = load_artifact(saved)
    np.testing.assert_array_equal(answer(found), X @ W)
    assert found.programs[0].dump == made.programs[0].dump
    m = found.manifest
    assert (m.pipeline, m.target, m.driver, m.flags) == ("float", "here", "local-sync", HOST_FLAGS)
    assert [(i.name, i.shape, i.dtype) for i in m.inputs] == [("arg0", (4, 64), "float32")]
    assert m.out_structure == {"tuple": [{"leaf": 0}]}
    assert m.float_parameter_bytes == W.nbytes
    assert m.weights["dense/w"].shape == W.shape
    assert m.versions["iree-base-compiler"].startswith("3.13")
    assert set(m.files) == {"model.vmfb", "weights.irpa", "program.mlir"}
    assert m.parameters["dense/w"].dtype == "float32"
    assert m.cpu.architecture
    written = ("files", "parameters", "cpu", "programs")
    assert m.model_copy(update=dict.fromkeys(written)) == (
        made.manifest.model_copy(update=dict.fromkeys(written))
    )


def test_weights_inside_the_module(tmp_path: Path) -> None:
    found = load_artifact(save_artifact(tmp_path / "out", build(inline=True)))
    assert found.parameters is None
    assert "weights.irpa" not in found.manifest.files
    np.testing.assert_array_equal(answer(found), X @ W)


def test_levels(made: Artifact, tmp_path: Path) -> None:
    path = save_artifact(tmp_path / "out", replace(made, emit=("float",)))
    assert "stablehlo.dot_general" in (path / "float.mlir").read_text()
    load_artifact(path)


def test_a_loaded_artifact_can_be_saved(saved: Path, tmp_path: Path) -> None:
    copy = save_artifact(tmp_path / "copy", load_artifact(saved))
    np.testing.assert_array_equal(answer(load_artifact(copy)), X @ W)
    again = save_artifact(copy, load_artifact(copy), force=True)  # onto itself
    np.testing.assert_array_equal(answer(load_artifact(again)), X @ W)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy", "out"]


# What exists


def test_existing_is_refused(made: Artifact, saved: Path) -> None:
    with pytest.raises(UserError, match=r"exists already; .*--force"):
        save_artifact(saved, made)
    save_artifact(saved, made, force=True)
    load_artifact(saved)


@pytest.mark.parametrize("kind", ["file", "empty", "other", "link"])
def test_foreign_is_left_alone(made: Artifact, saved: Path, tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    if kind == "file":
        place.write_text("mine")
    elif kind == "link":
        place.symlink_to(saved)
    else:
        place.mkdir()
        if kind == "other":
            (place / "manifest.json").write_text('{"name": "a web app"}')
    for force in (False, True):
        with pytest.raises(UserError, match="exists already|not an artifact"):
            save_artifact(place, made, force=force)
    assert place.exists()
    assert kind != "other" or (place / "manifest.json").read_text() == '{"name": "a web app"}'


def test_other_files_in_an_artifact_are_kept(made: Artifact, saved: Path) -> None:
    (saved / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds 'notes\.txt'"):
        save_artifact(saved, made, force=True)
    assert (saved / "notes.txt").exists()


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        check_output(tmp_path / "a" / "b")


# Failures while writing


@pytest.mark.parametrize("step", ["_put", "write_parameters", "StoredFile.of"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_failed_write_leaves_what_was_there(
    made: Artifact, saved: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(f"{save.__name__}.{step}", fail)
    expected = KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else JqError
    for place, force in ((saved, True), (saved.parent / "new", False)):
        with pytest.raises(expected):
            save_artifact(place, made, force=force)
    monkeypatch.undo()
    np.testing.assert_array_equal(answer(load_artifact(saved)), X @ W)
    assert [path.name for path in saved.parent.iterdir()] == ["out"]


@pytest.mark.parametrize("failing", [1, 2])
def test_failed_rename_leaves_what_was_there(
    made: Artifact, saved: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The other way, where the system cannot exchange two folders."""
    calls, real = [], Path.rename
    monkeypatch.setattr(folders, "exchange", lambda one, other: False)

    def rename(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == failing:
            raise KeyboardInterrupt
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        save_artifact(saved, made, force=True)
    monkeypatch.undo()
    np.testing.assert_array_equal(answer(load_artifact(saved)), X @ W)
    assert [path.name for path in saved.parent.iterdir()] == ["out"]


def test_full_disk_and_interrupt_in_a_process(saved: Path, tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import resource, signal, sys, time
        from pathlib import Path
        from jq.artifact import load as artifact
        from jq.artifact import save
        from jq.base.errors import JqError
        signal.signal(signal.SIGINT, signal.default_int_handler)  # else a background job ignores it
        source, place, mode = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
        made = artifact.load_artifact(source)
        if mode == "full":
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        else:
            def slow(path):
                print("writing", flush=True)
                time.sleep(60)
            save.sha256 = slow
        try:
            save.save_artifact(place, made)
        except JqError as error:
            print(error)
    """)

    def start(mode: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", script, str(saved), str(tmp_path / "new"), mode]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    full = start("full")
    output, _ = full.communicate(timeout=60)
    assert "cannot write the artifact: File too large" in output
    interrupted = start("interrupt")
    assert interrupted.stdout is not None
    assert interrupted.stdout.readline() == "writing\n"
    time.sleep(0.05)
    interrupted.send_signal(signal.SIGINT)
    assert interrupted.wait(timeout=60) != 0
    interrupted.stdout.close()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


# Damage


def one_line(path: Path, match: str) -> None:
    with pytest.raises(UserError, match=match) as caught:
        load_artifact(path)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["model.vmfb", "weights.irpa", "program.mlir"])
def test_damaged_files(saved: Path, name: str) -> None:
    whole = (saved / name).read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    (saved / name).write_bytes(flipped)
    one_line(saved, f"{name} is damaged: its checksum differs")
    (saved / name).write_bytes(whole[:-1])
    one_line(saved, f"{name} is damaged: {len(whole) - 1} bytes instead of {len(whole)}")
    (saved / name).unlink()
    one_line(saved, f"lacks {name}")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "damaged: not JSON"),
        ("{", "damaged: not JSON"),
        ('{"tool": "jaxq", "a": {"b": 1, "b": 2}}', "damaged: the key 'b' occurs twice"),
        ("[" * 100000, "damaged: not JSON"),
        ("[]", "not an artifact of jaxq"),
        ('{"tool": "other"}', "not an artifact of jaxq"),
        ('{"tool": "jaxq", "inputs": 3}', "damaged: inputs"),
        ('{"tool": "jaxq", "schema_version": "x"}', "damaged: schema_version"),
        ('{"tool": "jaxq"}', "'model.vmfb' is not as it should be"),
    ],
)
def test_damaged_manifest(saved: Path, text: str, match: str) -> None:
    (saved / "manifest.json").write_text(text)
    one_line(saved, match)


def edit(path: Path, **changes: Any) -> None:
    file = path / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_not_an_artifact(tmp_path: Path) -> None:
    one_line(tmp_path / "missing", "no such artifact")
    one_line(tmp_path, "is not an artifact")
    (tmp_path / "manifest.json").write_bytes(b"\xff\xfe")
    one_line(tmp_path, "damaged: not JSON")


def test_newer_schema(saved: Path) -> None:
    edit(saved, schema_version=SCHEMA_VERSION + 1, tool_version="9.0", inputs="unreadable")
    one_line(saved, r"written by jaxq 9\.0 .*install a newer jaxq")


def test_unknown_keys_of_the_same_schema_are_ignored(saved: Path) -> None:
    edit(saved, later_addition={"a": 1})
    load_artifact(saved)


def test_files_outside_are_not_read(saved: Path) -> None:
    files = json.loads((saved / "manifest.json").read_text())["files"]
    edit(saved, files={**files, "../../etc/passwd": {"bytes": 1, "sha256": "0"}})
    one_line(saved, "not as it should be")


def test_parameters_are_checked(saved: Path) -> None:
    """A foreign parameter file with a matching checksum: only types and shapes tell."""
    file = saved / "weights.irpa"
    write_parameters(file, {"dense/w": W.reshape(32, 64)})
    files = json.loads((saved / "manifest.json").read_text())["files"]
    sums = {"bytes": file.stat().st_size, "sha256": sha256(file)}
    edit(saved, files={**files, "weights.irpa": sums})
    one_line(saved, r"'dense/w' is float32\[32, 64\], not float32\[64, 32\]")


def test_other_processor(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = read_manifest(saved).cpu
    poor = cpu.Cpu(needed.architecture, frozenset(needed.features[1:]))
    monkeypatch.setattr(cpu, "host", lambda: poor)
    compiled = load(saved)  # it can be read, not run
    assert compiled.audit().weights
    with pytest.raises(UserError, match=f"this one has no {needed.features[0]}"):
        compiled(X)


def test_the_deepest_structure_comes_back() -> None:
    """Dicts alone take the most levels of JSON; one more is refused when it is traced."""
    tree: Any = 0.0
    for _ in range(79):
        tree = {"a": tree}
    check_depth(jax.tree.structure(tree), "outputs")
    structure = structure_of(jax.tree.structure(tree))
    tensor = Tensor(name="out", shape=(1,), dtype="float32")
    manifest = Manifest.model_construct(outputs=(tensor,), out_structure=dict(structure))
    again = json.loads(manifest.model_dump_json(include={"outputs", "out_structure"}))
    check_structure(again["out_structure"], 1)
    assert unflatten(again["out_structure"], [0.0]) == tree
    with pytest.raises(UserError, match="nested more than 80"):
        check_depth(jax.tree.structure([tree]), "outputs")


ODD_KEYS = {
    "surrogate": {"\ud800": 0, "b": 1},
    "not a number": {float("nan"): 0},
    "infinite": {float("inf"): 0, 1.0: 1},
    "pairs": {(1, 2): 0, (0, 3): 1},
}


@pytest.mark.parametrize("name", ODD_KEYS)
def test_keys_that_json_has_not(name: str, tmp_path: Path) -> None:
    """Such dicts come back from files as tuples, in JAX's order; names of tensors are UTF-8."""
    keys = ODD_KEYS[name]
    model = jq.Model(lambda p, x: {k: x[n] for k, n in keys.items()}, {}, (np.arange(2.0),))
    compiled = jq.compile(model, "float", measure=False)
    compiled.save(tmp_path / "out")
    want = model.fn({}, *model.example_inputs)
    leaves = tuple(np.float32(v) for v in jax.tree.leaves(want))
    found, loaded = compiled(np.arange(2.0)), jq.load(tmp_path / "out")(np.arange(2.0))
    assert loaded == leaves == tuple(jax.tree.leaves(found))
    assert jax.tree.structure(found) == jax.tree.structure(want)


@pytest.mark.parametrize("where", ["inputs", "parameters"])
def test_keys_that_cannot_be_sorted(where: str) -> None:
    tree = {"a": np.ones(2, np.float32), 1: np.ones(2, np.float32)}
    given = ({}, (tree,)) if where == "inputs" else (tree, (np.ones(2, np.float32),))
    with pytest.raises(UserError, match=f"{where} cannot be flattened: .* keys of a dict are all"):
        jq.trace(jq.Model(lambda p, x: x, *given))
