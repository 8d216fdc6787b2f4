"""No file of the current directory, or beside an artifact, is run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jq.base.system.child import python_command
from tests.trust.artifacts import copy_of

# Modules that Python, NumPy or we import late.
SHADOWS = ("resource", "json", "secrets", "numpy", "ml_dtypes", "iree", "sitecustomize", "jaxlib")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of modules that leave a mark when they run, and an artifact beside them."""
    for name in SHADOWS:
        text = f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\nraise SystemExit(3)\n"
        (tmp_path / f"{name}.py").write_text(text)
    copy_of(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=os.environ | environment
    )


def test_bench_runs_nothing_of_the_current_directory(hostile: Path) -> None:
    code = "import sys; sys.path.pop(0); from jq.cli import main; main()"
    measured = run(sys.executable, "-c", code, "bench", "artifact", "--seconds", "0.1", "-q")
    assert not (hostile / "ran").exists(), (hostile / "ran").read_text()
    assert measured.returncode == 0, measured.stderr


def test_a_child_does_not_look_at_the_directory_or_pythonpath(hostile: Path) -> None:
    command = python_command("jq.reporting.benchmark.worker", "no-such-job")
    done = run(*command, PYTHONPATH=str(hostile), PYTHONSTARTUP=str(hostile / "json.py"))
    assert "FileNotFoundError" in done.stderr
    assert not (hostile / "ran").exists(), (hostile / "ran").read_text()


def test_python_m_forgets_the_directory(hostile: Path) -> None:
    """Python itself looks there for `jq`; from then on nobody does."""
    done = run(sys.executable, "-m", "jq", "list", "formats", "-q", PYTHONPATH="")
    assert done.returncode == 0, done.stderr
    assert not (hostile / "ran").exists(), (hostile / "ran").read_text()


def test_a_built_in_model_is_not_taken_from_the_directory(hostile: Path) -> None:
    code = (
        "import sys; sys.path.pop(0)\n"
        "from jq.cli.app import main\n"
        "main(['explain', 'jq.models:nothing', '-q'])\n"
        "import secrets\n"
        "assert not any('hostile' in p for p in sys.path)"
    )
    done = run(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert not (hostile / "ran").exists(), (hostile / "ran").read_text()


def test_a_file_beside_the_model_takes_the_place_of_no_later_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").write_text("import beside\n\ndef build():\n    import beside.later\n")
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside/__init__.py").write_text("")
    (tmp_path / "beside/later.py").write_text("")
    (tmp_path / "netrc.py").write_text("raise SystemExit(3)")  # of the standard library
    code = (
        "from jq.base.errors import UserError\nfrom jq.frontends.tracing.source import load_model\n"
        "try:\n    load_model('model.py:build')\nexcept UserError as e:\n    print(e)\n"
        "import netrc; print(netrc.__file__)"
    )
    monkeypatch.chdir(tmp_path)
    done = run(sys.executable, "-P", "-c", code)
    assert done.returncode == 0, done.stderr
    assert "not a jq.Model" in done.stdout  # the function ran, with its late import
    assert str(tmp_path) not in done.stdout.splitlines()[-1]
