from __future__ import annotations

from pathlib import Path

import pytest

from jq.base.errors import UserError
from jq.base.system.processor import this_processor
from jq.iree import cpu
from jq.iree.compiler import HOST_FLAGS, compile_module
from jq.iree.cpu import Cpu
from jq.kernels import available

ADD = b"""func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %a : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
INFO = """processor : 0
model name\t: Some Xeon
flags\t\t: fpu pni ssse3 sse4_1 avx avx2 fma avx512f avx512_vnni abm

processor : 1
model name\t: Some Xeon
"""


def needs(*flags: str) -> Cpu:
    program = compile_module(ADD, flags=flags).program
    assert program is not None
    return cpu.needed_by(program)


def test_host_flags_are_translated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAXQ_MAX_ISA", raising=False)  # `--max-isa` would leave flags out
    file = tmp_path / "cpuinfo"
    file.write_text(INFO)
    found = cpu.named_by_llvm(this_processor(file, "AMD64"))
    assert found is not None
    assert found.name == "Some Xeon"
    assert found.architecture == "x86_64"
    assert found.features == {
        *("sse3", "ssse3", "sse4.1", "avx", "avx2", "fma", "avx512f", "avx512vnni", "lzcnt")
    }
    file.write_text("Features\t: fp asimd asimddp i8mm")
    arm = cpu.named_by_llvm(this_processor(file, "arm64"))
    assert arm is not None
    assert arm.features == {"neon", "dotprod", "i8mm"}
    assert cpu.named_by_llvm(this_processor(tmp_path / "missing")) is None


def test_compiled_for_this_machine() -> None:
    needed = needs(*HOST_FLAGS)
    assert needed.features
    cpu.check_host(needed)


RICH = "flags\t: sse2 avx avx2 fma avx512f avx512bw avx512vl avx512_vnni avx_vnni amx_int8"


@pytest.mark.parametrize(
    ("limit", "left"),
    [
        ("avx512", {"avx512f", "avx512bw", "avx512vl", "avx2", "avx", "fma", "sse2"}),
        ("avx_vnni", {"avx_vnni", "avx2", "avx", "fma", "sse2"}),
        ("avx2", {"avx2", "avx", "fma", "sse2"}),
        ("sse2", {"sse2"}),
    ],
)
def test_a_rich_machine_can_pass_for_a_poorer_one(
    limit: str, left: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(RICH)
    monkeypatch.setenv("JAXQ_MAX_ISA", limit)
    flags = this_processor(tmp_path / "cpuinfo", "x86_64").flags
    assert flags == left
    assert available(flags, "x86_64")[0].name == limit


def test_what_is_compiled_keeps_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAXQ_MAX_ISA", "sse2")
    assert not {"avx", "fma"} & needs(*HOST_FLAGS).features
    monkeypatch.setenv("JAXQ_MAX_ISA", "avx1024")
    with pytest.raises(UserError, match="JAXQ_MAX_ISA=avx1024 is not an instruction set; known: "):
        this_processor()


def test_richer_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    local = [flag for flag in HOST_FLAGS if "target-cpu" not in flag]
    rich = needs(*local, "--iree-llvmcpu-target-cpu=znver4")
    plain = needs(*local, "--iree-llvmcpu-target-cpu=generic")
    assert {"avx512vnni", "avx512bf16"} <= rich.features
    assert "avx" not in plain.features
    monkeypatch.setattr(cpu, "host", lambda: Cpu("x86_64", rich.features - {"avx512vnni"}))
    cpu.check_host(plain)
    with pytest.raises(UserError, match="has no avx512vnni; compile it on this machine"):
        cpu.check_host(rich)


def test_other_architecture_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    local = [flag for flag in HOST_FLAGS if "target-cpu" not in flag]
    arm = needs(
        *local,
        "--iree-llvmcpu-target-triple=aarch64-unknown-linux-gnu",
        "--iree-llvmcpu-target-cpu=generic",
        "--iree-llvmcpu-target-cpu-features=+dotprod,+i8mm",
    )
    assert arm.architecture == "aarch64"
    assert {"dotprod", "i8mm"} <= arm.features
    monkeypatch.setattr(cpu, "host", lambda: Cpu("x86_64", frozenset()))
    with pytest.raises(UserError, match="has no aarch64"):
        cpu.check_host(arm)
