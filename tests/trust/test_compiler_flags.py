"""A target file chooses code and nothing else; no flag means anything to a shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from jq.base.errors import UserError
from jq.base.system.folders import data_names
from jq.cli.app import main
from jq.target.compiler_flags import FROM_FILES, check_user_flags, combined
from jq.target.target import load_target

MODULE = b"""func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = stablehlo.add %x, %x : tensor<4xf32>
  return %y : tensor<4xf32>
}"""
HOSTILE = (
    "--iree-llvmcpu-embedded-linker-path=touch PWNED #",
    "--iree-llvmcpu-embedded-linker-path=/tmp/linker",
    "--iree-llvmcpu-system-linker-path=/tmp/linker",
    "--iree-llvmcpu-link-embedded=false",
    "--iree-llvmcpu-static-library-output-path=PWNED",
    "--iree-llvmcpu-target-triple=x;touch PWNED",
    "--iree-llvmcpu-target-cpu=$(touch PWNED)",
    "--iree-llvmcpu-target-cpu=`touch PWNED`",
    "--iree-llvmcpu-target-cpu=a\ntouch PWNED",
    "--iree-llvmcpu-target-cpu=../../x",
    "--iree-hal-dump-executable-files-to=PWNED",
    "--iree-scheduling-dump-statistics-file=PWNED",
    "--iree-codegen-transform-dialect-library=/etc/passwd",
    "--iree-hal-preprocess-executables-with=touch PWNED",
    "--dump-compilation-phases-to=PWNED",
    "--mlir-print-ir-tree-dir=PWNED",
    "--iree-plugin=/tmp/x.so",
    "-iree-llvmcpu-system-linker-path=/tmp/linker",
    "-o",
    "-oPWNED",
    "PWNED",
    "@PWNED",
    "",
    "--",
)


def target(folder: Path, key: str, flags: list[str]) -> Path:
    path = folder / "own.toml"
    listed = ", ".join(f'"""{flag}"""' for flag in flags)
    path.write_text(f"{key} = [{listed}]\n")
    return path


@pytest.mark.parametrize("key", ["flags", "product_flags"])
@pytest.mark.parametrize("flag", HOSTILE)
def test_a_target_file_brings_no_such_flag(key: str, flag: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"target .*own.toml: {key}.*flag"):
        load_target(str(target(tmp_path, key, [flag])))


def test_nothing_is_started_and_nothing_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.mlir").write_bytes(MODULE)
    before = {*tmp_path.iterdir(), target(tmp_path, "flags", [HOSTILE[0]])}
    assert main(["compile", "m.mlir", "-o", "out", "-t", "own.toml", "-q"]) == 2
    assert "--iree-flag" not in capfd.readouterr().err  # no shell takes it either
    more = f"--iree-flag={HOSTILE[0]}"
    assert main(["compile", "m.mlir", "-o", "out", more, "-q"]) == 2
    assert {*tmp_path.iterdir()} == before


def test_our_own_targets_need_no_other(tmp_path: Path) -> None:
    for name in data_names("targets"):
        assert {flag.partition("=")[0] for flag in load_target(name).flags} <= FROM_FILES
    harmless = ["--iree-llvmcpu-target-cpu-features=+avx2,-fma", "--iree-opt-data-tiling"]
    assert load_target(str(target(tmp_path, "flags", harmless))).flags == tuple(harmless)


def test_a_flag_on_the_command_line_reaches_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.mlir").write_bytes(MODULE)
    command = ["compile", "m.mlir", "-o", "out", "--no-cache", "-q"]
    assert main([*command, "--iree-flag=--iree-no-such-flag=1"]) == 2
    assert "IREE's compiler has no flag --iree-no-such-flag" in capfd.readouterr().err
    assert main([*command, "--iree-flag=--iree-llvmcpu-target-cpu=x86-64-v2"]) == 0
    manifest = (tmp_path / "out/manifest.json").read_text()
    assert "target-cpu=x86-64-v2" in manifest
    assert "target-cpu=host" not in manifest


def test_flags_of_a_person() -> None:
    given = ["--iree-llvmcpu-embedded-linker-path=/opt/my-lld", "--mlir-timing"]
    assert check_user_flags(given) == tuple(given)
    assert combined(["--a=1", "--b"], ["--a=2"]) == ("--b", "--a=2")
