"""The command line from outside."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from typer.main import get_command

from jq.base.system.folders import data_names
from jq.cli import _open_streams
from jq.cli.app import app, main
from jq.cli.command import PANELS

Captured = pytest.CaptureFixture[str]
COMMANDS = ["compile", "run", "compare", "inspect", "explain", "calibrate", "bench", "doctor"]
COMMANDS += ["generate", "perplexity", "quantize"]


@pytest.mark.parametrize("name", [*COMMANDS, *(f"list {k}" for k in ("formats", "models"))])
def test_every_command_has_help_with_an_example(name: str, capsys: Captured) -> None:
    assert main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Example: jaxq {name}" in shown
    for option in ("--json", "--quiet", "--verbose", "--debug"):
        assert option in shown
    assert "<bool>" not in shown


def _commands() -> list[str]:
    """Every command, those of groups (`list formats`) with theirs."""
    found = []
    for name, each in get_command(app).commands.items():
        inner = getattr(each, "commands", {})
        found += [f"{name} {other}" for other in inner] or [name]
    return found


@pytest.mark.parametrize("name", _commands())
def test_no_option_is_cut_at_80_columns(name: str, monkeypatch, capsys: Captured) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 80)
    assert main([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "─ Every command ─" in shown  # options in groups
    command = get_command(app)
    for part in name.split():
        command = command.commands[part]
    for option in command.params:
        for flag in (*option.opts, *option.secondary_opts):
            assert not flag.startswith("-") or re.search(rf"{flag}(?![\w-])", shown), flag


def test_the_help_of_a_long_command_has_groups(capsys: Captured) -> None:
    main(["compile", "--help"])
    shown = capsys.readouterr().out
    titles = re.findall(r"^╭─ (.*?) ─+╮$", shown, re.MULTILINE)
    assert titles == ["Arguments", "Options", *sorted(PANELS, key=titles.index)]


def test_no_command_shows_the_help(capsys: Captured) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)
    assert "Exit code" not in shown and "Example" not in shown  # one sentence for each command
    assert "<bool>" not in shown
    assert main(["list"]) == 0
    assert "pipelines" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compil"], "No such command 'compil'"),
        (["compile"], "Missing argument 'MODEL'. (see `jaxq compile --help`)"),
        (["compile", "m", "-o", "d", "--nothing"], "No such option"),
        (["bench", "d", "--threads", "0"], "--threads"),
        (["list", "nothing"], "No such command"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(
    arguments: list[str], said: str, capsys: Captured
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("kind", ["pipelines", "targets"])
def test_lists_our_data_files(kind: str, capsys: Captured) -> None:
    assert main(["list", kind, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)[kind]
    assert [each["name"] for each in listed] == data_names(kind)
    assert all(each["description"] for each in listed)


def test_the_table_of_architectures_says_what_is_read(capsys: Captured) -> None:
    assert main(["list", "architectures"]) == 0
    _, header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "gguf", "model_type"]
    assert any(row.split()[:2] == ["llama", "yes"] for row in rows)


def test_lists_formats(capsys: Captured) -> None:
    assert main(["list", "formats", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["formats"]
    assert {"int4", "int8"} <= {each["name"] for each in listed}
    assert all(each["description"] for each in listed)


def test_inspects_a_gguf_file(tmp_path: Path, capsys: Captured) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "test")
    writer.add_tensor("a.weight", np.zeros((3, 5), np.float32))
    packed = gguf.quants.quantize(np.ones((2, 64), np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("b.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert main(["inspect", str(tmp_path / "model.gguf"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tensors"] == [
        {"name": "a.weight", "shape": [3, 5], "type": "F32", "bytes": 60},
        {"name": "b.weight", "shape": [2, 64], "type": "Q8_0", "bytes": 4 * 34},
    ]


def test_help_imports_no_compiler() -> None:
    """`python -m jq` starts quickly: jax and IREE are imported by the commands that need them."""
    code = (
        "import sys, jq.cli.app as app; assert app.main(['--version']) == 0; "
        "heavy = {'jax', 'jaxlib', 'iree', 'numpy'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("jaxq ")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("compile m --pipeline int8-w", "int8-weight-only"),
        ("compile m --target avx2,npu-i", "avx2,npu-int8"),
        ("explain jq.models:ml", "jq.models:mlp"),
        ("compile m -o d --emit i", "integer"),
        ("compile m --set weights.gran", "weights.granularity="),
        ("compare m --metric top1", "top1_agreement"),
        ("compile net", "net.mlir nets/"),
        ("compile nets/m", "nets/mine.onnx nets/my.py"),
        ("compile nowhere/m", ""),
    ],
)
def test_shells_complete_names_and_files(
    words: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """As bash asks for it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets").mkdir()
    for name in ("nets/my.py", "nets/mine.onnx", "nets/my.txt", "net.mlir"):
        (tmp_path / name).touch()
    given = f"jaxq {words}"
    monkeypatch.setenv("_JAXQ_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", given)
    monkeypatch.setenv("COMP_CWORD", str(len(given.split()) - 1))
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out.split() == found.split()


def test_names_that_the_terminal_cannot_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `LC_ALL=C PYTHONUTF8=0`, where Python's own stream raises."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    _open_streams()
    print("größe → \udcff", flush=True)
    assert written.getvalue() == rb"gr\xf6\xdfe \u2192 \udcff" + b"\n"
