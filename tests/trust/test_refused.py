"""Input that nobody can compile or run: one line and exit code 2, and nothing is accepted
that means something else than it says."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - names of types
import numpy as np
import pytest

import jq
from jq.artifact.parameters import read_index, write_parameters
from jq.base.errors import UserError
from jq.cli.app import main
from jq.driver.loading import load
from jq.iree.runtime import Executable
from tests.trust.artifacts import SAVED, copy_of, rehashed

MODEL = """
import sys
import jax.numpy as jnp
import numpy as np
import jq

x = np.zeros((4, 4), np.float32)
gone = jnp.zeros((4, 4))
gone.delete()


def leave(*_):
    sys.exit(3)


model = jq.Model(lambda p, x: x @ p, x, (x,), calibration=[(x,)])
leaves = jq.Model(leave, x, (x,))
leaves_later = jq.Model(lambda p, x: x @ p, x, (x,), calibration=leave)
deleted = jq.Model(lambda p, x: x @ p, gone, (x,))
"""
FUNCTION = (
    "func.func public @main(%a: {0}) -> {0} {{\n  %b = stablehlo.add %a, %a : {0}\n"
    "  return %b : {0}\n}}"
)
DEEP = "[" * 20_000
# Arguments after `explain`, and what is answered.
CASES = {
    "a path that is no file": (["./my:model"], "no module named './my'"),
    "a relative name": ([".x:y"], "no module named '.x'"),
    "exit while tracing": (["my.py:leaves"], "SystemExit: 3"),
    "exit in the data": (["my.py:leaves_later", "-p", "int8-static"], "SystemExit: 3"),
    "deleted": (["my.py:deleted"], "the array was deleted"),
    "nested value": (["my.py:model", "--set", f"recovery={DEEP}"], "nested too deeply"),
    "nested rule": (["my.py:model", "--rule", f"*: x={DEEP}"], "nested too deeply"),
    "a pass twice": (
        ["my.py:model", "-p", "int8-static", "--set", 'recovery=["smooth", "smooth"]'],
        "'smooth' is listed twice",
    ),
    "unknown option": (["my.py:model", "--set", 'weights.options.zzz="a"'], "no option 'zzz'"),
    "an option's value": (
        ["my.py:model", "--set", 'weights.options.divisor="a"'],
        "no divisor 'a'",
    ),
    "an option of a rule": (["my.py:model", "--rule", "*: weights.options.z=a"], "option 'z'"),
    "a setting of the whole": (
        ["my.py:model", "--rule", "*: calibration.method=minmax"],
        "calibration.method is of the whole program",
    ),
    "a size of nothing": (["my.py:model", "--size", "zzz=4"], "no open dimension 'zzz'"),
    "another size": (
        ["d.mlir", "--size", "arg0[0]=4", "--size", "zzz=4"],
        "no open dimension 'zzz'; known: arg0[0]",
    ),
    "a huge size": (["d.mlir", "--size", f"arg0[0]={2**63}"], "it is a number from 0 to"),
    "no number": (["d.mlir", "--size", "arg0[0]=true"], "it is a number from 0 to"),
    "unranked": (["unranked.mlir"], "unranked.mlir"),
    "many axes": (["axes.mlir"], "a tensor of 70 axes, at most 60"),
    "huge": (["huge.mlir"], "more than 1099511627776 elements"),
}
DEVICES = {
    'products = ["int8"]': "a product is 'FORMAT x FORMAT'",
    'products = ["int8 x zzz"]': "unknown number format 'zzz'",
    'tensors = ["zzz"]': "unknown number format 'zzz'",
    'weight_schemes = ["zzz"]': "'symmetric' or 'asymmetric'",
    'activation_granularities = ["per-channel"]': "'per-tensor', 'per-token' or 'per-block'",
    'ops = ["zzz"]': "unknown op 'zzz' in device.ops",
    'ops = ["default"]': "unknown op 'default' in device.ops",
}
TARGETS = {
    'driver = "zzz"': "'local-task' or 'local-sync'",
    'programs = ["own.toml"]': "own.toml is a program of itself",
    "flags = []": "the target's flags name no device",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("my.py").write_text(MODEL)
    kinds = {
        "d": "tensor<?x4xf32>",
        "unranked": "tensor<*xf32>",
        "axes": f"tensor<{'1x' * 70}f32>",
        "huge": f"tensor<{2**62}x{2**62}xf32>",
    }
    for name, kind in kinds.items():
        Path(f"{name}.mlir").write_text(FUNCTION.format(kind))
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments, "-q"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("name", CASES)
def test_models_and_settings(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, message = CASES[name]
    assert message in refused(capsys, "explain", *arguments)


@pytest.mark.parametrize("text", [*DEVICES, *TARGETS])
def test_targets(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    device = text in DEVICES
    Path("own.toml").write_text(f"[device]\n{text}\n" if device else f"{text}\n")
    command = ["compile", "my.py:model", "-o", "out", "-p", "float", "-t", "own.toml"]
    assert {**DEVICES, **TARGETS}[text] in refused(capsys, *command)
    assert not Path("out").exists()


def test_threads(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "bench", str(SAVED), "--threads", str(2**70))
    assert "--threads" in line and "1024" in line
    with pytest.raises(UserError, match="between 1 and 1024"):
        Executable.load(SAVED / "model.vmfb", threads=2**70)


ODD: tuple[Any, ...] = (None, -1, 1e30, "zzz\x1b", [], {}, [None], {"a": 1}, 10**30, "object", "V8")


def tampered(node: Any, top: Any) -> Iterator[str]:
    """Manifests with one value each that is another, all over the document."""
    items = list(node.items() if isinstance(node, dict) else enumerate(node[:2]))
    for key, value in items:
        for odd in ODD:
            node[key] = odd
            yield json.dumps(top)
        node[key] = value
        if isinstance(value, dict | list):
            yield from tampered(value, top)


def test_tampered_manifests(tmp_path: Path) -> None:
    """Every seventh of 1,100; all of them gave 0 others when this was written."""
    folder = copy_of(tmp_path)
    manifest, arrays = json.loads((folder / "manifest.json").read_text()), np.zeros((2, 8), np.int8)
    tried, refused = 0, 0
    for text in list(tampered(manifest, manifest))[::7]:
        (folder / "manifest.json").write_text(text)
        tried += 1
        try:
            found = load(folder)
            str(found.audit())
            if tried % 8 == 0:
                found(arrays)
        except UserError:
            refused += 1
    assert refused > 60 and tried > 150


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float64", "bfloat16", "bool"])
def test_results_are_not_reinterpreted(dtype: str, tmp_path: Path) -> None:
    folder = copy_of(tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["outputs"][0]["dtype"] = dtype
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=f"gives float32, and not {dtype}"):
        load(folder)(np.zeros((2, 8), np.int8))


def test_a_module_that_is_none(tmp_path: Path) -> None:
    folder, whole = copy_of(tmp_path), (SAVED / "model.vmfb").read_bytes()
    for content in (b"", b"PK\3\4" + bytes(100), whole[:-3000], whole[:200]):
        (folder / "model.vmfb").write_bytes(content)
        rehashed(folder)
        with pytest.raises(UserError, match="cannot load the compiled module"):
            load(folder)(np.zeros((2, 8), np.int8))


def test_keys_that_are_no_text(tmp_path: Path) -> None:
    array = {"a/key": np.zeros(4, np.float32)}
    for name in ("w.irpa", "w.safetensors"):
        write_parameters(tmp_path / name, array)
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content.replace(b"a/key", b"a\xff\xfeey"))
        with pytest.raises(UserError, match="cannot read parameters"):
            read_index(tmp_path / name)
    head = b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,99999]}}'
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + bytes(16))
    with pytest.raises(UserError, match="cannot read parameters"):
        read_index(tmp_path / "w.safetensors")


@pytest.mark.usefixtures("quick_xla")
def test_an_example_of_64_bits_is_taken_by_what_was_compiled_from_it() -> None:
    x = np.arange(4, dtype=np.uint64)
    model = jq.Model(lambda p, x: x + p, np.ones(4, np.uint64), (x,), evaluation=[(x,)])
    compiled = jq.compile(model, pipeline="float")
    (dtype,) = {spec.dtype for spec in compiled.inputs}
    assert dtype == "uint32"
    np.testing.assert_array_equal(compiled(x), x + 1)
    assert jq.compare(model, compiled).outputs[0].match == 1
    with pytest.raises(UserError, match="do not fit uint32"):
        compiled(x + 2**32)
