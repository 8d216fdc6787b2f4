"""The self-test finds what is wrong, and the machine is described as its kernel does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from jq.base.system.processor import this_processor
from jq.cli.app import main
from jq.iree.runtime import Executable
from jq.reporting import doctor
from jq.target.target import load_target


def test_this_machine_is_sound(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is True
    assert "llvm-cpu" in [test["target"] for test in document["self_test"]]
    assert document["versions"]["iree-base-compiler"].startswith("3.")
    assert document["cpu"]["threads"] >= 1
    assert "local-task" in document["drivers"]
    assert document["system"]["temporary_free_bytes"] > 0
    assert document["system"]["memory_bytes"] > 1 << 28
    assert document["environment"]["JAX_PLATFORMS"] == "cpu"


def test_what_is_shown_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXQ_SIGN_PASSWORD", "secret")
    monkeypatch.setenv("XLA_FLAGS", "--x")
    monkeypatch.setenv("HOME", "/nowhere")
    assert doctor.environment()["XLA_FLAGS"] == "--x"
    assert "secret" not in str(doctor.environment()) and "HOME" not in doctor.environment()


def test_one_wrong_sum_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Executable.__call__

    def wrong(self: Executable, *inputs: np.ndarray) -> list[np.ndarray]:
        (result,) = right(self, *inputs)
        result[-1, -1] += 1
        return [result]

    monkeypatch.setattr(Executable, "__call__", wrong)
    found = doctor.check(load_target("llvm-cpu"))
    assert not found.passed
    assert found.reason == "1 of 1x64 sums over 64 are wrong"


def test_a_compiler_that_fails_is_a_failed_check() -> None:
    target = load_target("llvm-cpu").model_copy(update={"flags": ("--no-such-flag",)})
    found = doctor.check(target)
    assert not found.passed
    assert "no-such-flag" in found.reason


def test_a_foreign_target_is_not_run() -> None:
    flag = "--iree-llvmcpu-target-triple=riscv64-unknown-linux-gnu"
    target = load_target("llvm-cpu")
    assert doctor.runs_here(target)
    assert not doctor.runs_here(target.model_copy(update={"flags": (*target.flags, flag)}))
    assert not doctor.runs_here(target.model_copy(update={"driver": "none"}))


def test_cpu_as_the_kernel_describes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAXQ_MAX_ISA", raising=False)  # the suite may be run as for a poorer one
    info = tmp_path / "cpuinfo"
    info.write_text("model name : A\nflags : fpu avx2 avx512_vnni\n\nmodel name : B\nflags : x\n")
    described = doctor.describe(this_processor(info))
    assert described["model"] == "A"
    assert described["features"] == ["avx2", "avx512_vnni"]
    info.write_text("Features : fp asimddp i8mm\n")
    assert doctor.describe(this_processor(info))["features"] == ["asimddp", "i8mm"]
    assert doctor.describe(this_processor(tmp_path / "none"))["features"] == []


@pytest.mark.parametrize(
    ("jaxlib", "wrong"),
    [
        ("0.10.2", ["fused sums", "49176"]),
        ("0.11.2", ["49176"]),
        ("0.12.0.1", ["49176"]),
        ("0.13.0", []),
        ("1.0", []),
        ("not installed", []),
    ],
)
def test_versions_that_are_known_to_be_wrong(jaxlib: str, wrong: list[str]) -> None:
    found = doctor.known_defects(doctor.versions() | {"jaxlib": jaxlib})
    assert len(found) == len(wrong)
    for row, part in zip(found, wrong, strict=True):
        assert row["version"] == f"jaxlib {jaxlib}" and part in row["wrong"] and row["remedy"]
