"""Artifacts with programs for several targets: the best that a machine runs is taken."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import iree._runtime_libs as _runtime_libs
import jax
import numpy as np
import pytest

import jq
from jq.artifact import programs
from jq.artifact.load import read_manifest
from jq.artifact.programs import TargetProgram, best_first, check_runs, choose
from jq.base.errors import UserError
from jq.base.system.folders import data_names
from jq.base.system.processor import Processor
from jq.iree import cpu
from jq.iree.cpu import Cpu
from jq.kernels import ISAS, detect, get_isa
from jq.kernels.machine.isa import available
from jq.target.target import SAME, load_target
from tests.support import encoder

RNG = np.random.default_rng(3)
X = RNG.standard_normal((5, 64)).astype(np.float32)
PARAMS = {
    "a": RNG.standard_normal((64, 96)).astype(np.float32),
    "b": RNG.standard_normal((96, 40)).astype(np.float32),
}


def _model() -> jq.Model:
    return jq.Model(lambda p, x: (x @ p["a"]) @ p["b"], PARAMS, (X,))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = jq.compile(_model(), target="sse2,llvm-cpu-aarch64,llvm-cpu")
    return made.save(tmp_path_factory.mktemp("several") / "out")


def test_each_program_gives_the_same_bits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    best = jq.load(folder)
    assert (best.program.target, best.program.kernels) == ("llvm-cpu", detect().name)
    results, module = [best(X)], best.vmfb
    monkeypatch.setattr(cpu, "host", lambda: Cpu("x86_64", frozenset()))
    poorer = jq.load(folder)
    assert poorer.program.target == "llvm-cpu-generic"
    assert poorer.vmfb != module
    results.append(poorer(X))
    np.testing.assert_array_equal(*results)


def test_an_encoder_has_the_same_bits_whatever_the_lanes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GELU, normalizations, attention in codes, and what IREE sums by itself after them."""
    names = [isa.name for isa in available() if isa.name in ("avx2", "avx512", "avx512_vnni")]
    if len(names) < 2:
        pytest.skip("this machine has vectors of one width")
    names = [names[0], names[-1]]
    model = encoder.build_random(sequence=24, layers=1, hidden=64)
    made = jq.compile(model, pipeline="int8-static", target=",".join(names))
    folder, results = made.save(tmp_path / "out"), []
    for name in names:
        monkeypatch.setenv("JAXQ_MAX_ISA", name)
        compiled = jq.load(folder)
        assert compiled.program.kernels == name
        results.append([compiled(*batch) for batch in model.evaluation()])
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_inspect_lists_the_programs(folder: Path) -> None:
    found = jq.load(folder).audit()
    rows = found.to_dict()["programs"]
    assert {row["target"] for row in rows} == {"llvm-cpu", "llvm-cpu-generic", "llvm-cpu-aarch64"}
    files = read_manifest(folder).files
    assert {row["bytes"] for row in rows} == {
        file.bytes for name, file in files.items() if name.endswith(".vmfb")
    }
    assert found.verified and "programs: " in found.summary()


def test_a_program_says_what_it_needs() -> None:
    """On every machine: a processor like another one; and a permission, where it has tiles."""
    params = {"w": np.ones((64, 64), np.float32)}
    model = jq.Model(lambda p, x: x @ p["w"], params, (np.ones((16, 64), np.float32),))
    for target, like, tiles in (
        ("amx_int8", "x86-64-v4", True),
        ("avx512_vnni", "x86-64-v4", False),
        ("x86-64-v3", "x86-64-v3", False),
    ):
        made = jq.compile(model, "int8-dynamic", target).programs[0]
        where, *permission = made.requirements()
        more = {"amx_int8": {"amx-int8", "amx-tile", "avx512vnni"}, "avx512_vnni": {"avx512vnni"}}
        text, _, rest = where.partition(" has")
        assert text == f"runs on x86_64 processors with all that {like}"
        beyond, _, hint = rest.removeprefix(", and ").partition(";")
        named = set(filter(None, beyond.split(", ")))
        assert more.get(target, set()) <= named and bool(named) == (target in more)
        assert hint.startswith(" for any x86-64")
        assert len(permission) == tiles
        assert not tiles or "it does so itself, also under IREE's own tools" in permission[0]
        assert not tiles or "--target avx512_vnni" in permission[0]
        before = replace(made, dump=made.dump.replace("0x1023", "0"))  # of an earlier version
        assert not tiles or "compile it again" in before.requirements()[1]
    (where,) = jq.compile(model, "int8-dynamic", "llvm-cpu-aarch64").programs[0].requirements()
    assert where.startswith("runs on aarch64 processors")


def _rows(rows: int, pipeline: str) -> tuple[jq.Model, str]:
    x = RNG.standard_normal((rows, 512)).astype(np.float32)
    w = RNG.standard_normal((512, 512)).astype(np.float32)
    return jq.Model(lambda p, x: x @ p, w, (x,), calibration=[(x,)]), pipeline


def _windows() -> tuple[jq.Model, str]:
    x = RNG.standard_normal((2, 16, 16, 32)).astype(np.float32)
    k = RNG.standard_normal((3, 3, 32, 64)).astype(np.float32)
    numbers = ("NHWC", "HWIO", "NHWC")

    def call(k: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=numbers)

    return jq.Model(call, k, (x,), calibration=[(x,)]), "int8-static"


@pytest.mark.parametrize(
    "made",
    [
        lambda: _rows(64, "int8-dynamic"),
        lambda: _rows(1, "int4-dynamic"),
        _windows,
        lambda: (encoder.build_random(sequence=32, layers=1, hidden=64), "int8-dynamic"),
        lambda: (encoder.build_random(sequence=32, layers=1, hidden=64), "int8-static"),
    ],
    ids=["products", "one row", "convolution", "encoder", "static encoder"],
)
def test_tools_of_iree_run_what_is_compiled_by_default(
    made: Callable[[], tuple[jq.Model, str]], tmp_path: Path
) -> None:
    """Also on a processor with matrix tiles, which nobody but the program asks for."""
    model, pipeline = made()
    inputs = next(iter(model.evaluation()))[: len(model.example_inputs)] if model.evaluation else ()
    inputs = inputs or model.example_inputs
    compiled = jq.compile(model, pipeline)
    module = compiled.save(tmp_path / "out") / "model.vmfb"
    tool = Path(_runtime_libs.__path__[0]) / "iree-run-module"
    command = [tool, f"--module={module}", "--function=main", "--device=local-task"]
    command += ["--task_worker_stack_size=524288", "--output=@result.npy"]
    for i, x in enumerate(inputs):
        np.save(tmp_path / f"in{i}.npy", x)
        command.append(f"--input=@in{i}.npy")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (expected,) = jax.tree.leaves(compiled(*inputs))
    np.testing.assert_array_equal(np.load(tmp_path / "result.npy"), expected)


def test_what_has_equal_bytes_is_stored_once(folder: Path) -> None:
    stored = read_manifest(folder).parameters
    assert {"a:column_scale", "a:packed"} <= stored.keys()
    assert "a:packed@llvm-cpu-generic" in stored
    assert not [key for key in stored if key.startswith("a:column_scale@")]


def test_a_loaded_one_is_saved_whole(folder: Path, tmp_path: Path) -> None:
    again = jq.load(jq.load(folder).save(tmp_path / "copy"))
    assert again.manifest.programs == jq.load(folder).manifest.programs
    again.save(tmp_path / "copy", overwrite=True)  # numbered files are the artifact's own


def test_a_program_that_is_not_listed_as_a_file_is_damage(folder: Path, tmp_path: Path) -> None:
    made = jq.load(folder).save(tmp_path / "copy")
    manifest = made / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"module": "model.2', '"module": "../model.2'))
    with pytest.raises(UserError, match="is not as it should be"):
        jq.load(made)


# The choice, by what a program says that it needs


def _program(name: str, features: str, kernels: str = "", triple: str = "x86_64") -> TargetProgram:
    dump = f'cpu = "x", cpu_features = "{features}", target_triple = "{triple}-unknown-linux-gnu"'
    return TargetProgram(name, kernels or name, b"", dump)


BF16, VNNI, V3, ARM = (
    _program("avx512_bf16", "+avx2,+avx512f,+avx512vnni,+avx512bf16"),
    _program("avx512_vnni", "+avx2,+avx512f,+avx512vnni"),
    _program("x86-64-v3", "+avx2", "avx2"),
    _program("aarch64_i8mm", "+dotprod,+i8mm", triple="aarch64"),
)
RICH = frozenset(("avx2", "avx512f", "avx512vnni", "avx512bf16"))


@pytest.mark.parametrize(
    ("here", "vendor", "chosen"),
    [
        (Cpu("x86_64", RICH), "AuthenticAMD", BF16),
        (Cpu("x86_64", RICH), "GenuineIntel", VNNI),
        (Cpu("x86_64", RICH - {"avx512bf16"}), "AuthenticAMD", VNNI),
        (Cpu("x86_64", frozenset({"avx2"})), "AuthenticAMD", V3),
        (Cpu("x86_64", frozenset()), "AuthenticAMD", None),
        (Cpu("aarch64", frozenset({"dotprod", "i8mm"})), "", ARM),
        (Cpu("aarch64", frozenset({"dotprod"})), "", None),
    ],
)
def test_the_best_that_runs(
    monkeypatch: pytest.MonkeyPatch, here: Cpu, vendor: str, chosen: TargetProgram | None
) -> None:
    monkeypatch.setattr(cpu, "host", lambda: here)
    monkeypatch.setattr(
        programs, "this_processor", lambda: Processor(here.architecture, vendor=vendor)
    )
    found = choose([BF16, VNNI, V3, ARM])
    assert found is chosen
    if chosen is None:
        with pytest.raises(UserError, match="none of which runs here; compile it with --target "):
            check_runs([BF16, VNNI, V3, ARM])


def test_tiles_that_the_system_does_not_give(monkeypatch: pytest.MonkeyPatch) -> None:
    tiles = _program("amx_int8", "+avx512vnni,+amx-int8")
    here = Cpu("x86_64", RICH | {"amx-int8"})
    monkeypatch.setattr(cpu, "host", lambda: here)
    for given, chosen in ((True, tiles), (False, VNNI)):
        monkeypatch.setattr(programs, "permit_tiles", lambda given=given: given)
        assert choose([tiles, VNNI]) is chosen


def test_one_that_is_only_slow_is_better_than_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "host", lambda: Cpu("x86_64", RICH))
    monkeypatch.setattr(programs, "this_processor", lambda: Processor("x86_64", vendor="Genuine"))
    assert choose([BF16]) is BF16


def test_the_refusal_says_for_what_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "host", lambda: Cpu("x86_64", frozenset({"avx2"})))
    with pytest.raises(UserError, match=r"has no avx512f, avx512vnni; .* --target \w+, or for"):
        check_runs([VNNI])


# Names


def test_every_instruction_set_is_a_target() -> None:
    for name, isa in ISAS.items():
        if name != "portable":
            target = load_target(name)
            assert target.kernels == name
            assert any(f"triple={isa.machine}-" in flag for flag in target.flags)


def test_a_list_is_flat_sorted_and_without_doubles() -> None:
    target = best_first(load_target("x86-64-v3, llvm-cpu-portable,avx2"))
    assert [m.name for m in target.members] == ["avx512_vnni", "x86-64-v3", "llvm-cpu-generic"]
    assert target.flags == load_target("avx512_vnni").flags
    assert target.name == "x86-64-v3, llvm-cpu-portable,avx2"


def test_lists_that_make_no_artifact() -> None:
    for name, message in (
        ("x86-64-v3,avx9", "unknown target 'avx9'"),
        (",", "names no target"),
        ("x86-64-v3,npu-int8", "can do different things"),
    ):
        with pytest.raises(UserError, match=message):
            load_target(name)


def test_other_names_are_of_targets() -> None:
    assert set(SAME.values()) <= set(data_names("targets"))
    assert all(get_isa(name).name == load_target(name).kernels for name in SAME)
