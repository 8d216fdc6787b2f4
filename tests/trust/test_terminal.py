"""Nothing that stands in a file is obeyed by the terminal that shows it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from rich.table import Table

from jq.base.tables import printable, to_text
from jq.cli.app import main
from jq.cli.output import Output
from tests.trust.artifacts import copy_of

# Clears the screen; a link; turns the line around; an end of style without a start.
HOSTILE = "w\x1b[2J\x1b]8;;http://x\x07\x9b2J\u202e[link=http://x][/]"


def harmless(text: str) -> bool:
    """True if a terminal shows every character; its own commands aside, of which tests get none."""
    return printable(text) == text and "[link=http://x][/]" in text


def test_what_is_escaped() -> None:
    assert printable("é\tß\n中 [x] \\x1b") == "é\tß\n中 [x] \\x1b"
    assert printable("\x1b\r\x7f\u202e\ud800") == r"\x1b\r\x7f\u202e\ud800"
    table = Table(HOSTILE, title=HOSTILE)
    table.add_row(HOSTILE)
    assert harmless(to_text(table, HOSTILE, width=400))


def test_the_names_of_an_artifact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copy_of(tmp_path)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    (name,) = manifest["encodings"]
    manifest["encodings"][HOSTILE] = manifest["encodings"][name]
    path.write_text(json.dumps(manifest))
    assert main(["inspect", str(folder)]) == 0
    captured = capsys.readouterr()
    assert harmless(captured.out) and printable(captured.err) == captured.err


def test_errors_progress_and_notes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text(f"{json.dumps(HOSTILE)} = 2\n")
    for more in ([], ["--debug"]):
        assert main(["explain", "no.py:model", "-t", "own.toml", *more]) == 2
        assert harmless(capsys.readouterr().err)
    out = Output(stdout=io.StringIO())
    out.note(HOSTILE)
    with out.progress() as progress:
        progress(HOSTILE, None)
    assert harmless(capsys.readouterr().err)


def test_the_tensors_of_a_gguf_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "test")
    writer.add_tensor(HOSTILE, np.zeros((3, 5), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert main(["inspect", str(tmp_path / "m.gguf")]) == 0
    assert harmless(capsys.readouterr().out)
