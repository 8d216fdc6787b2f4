"""The README's example does what it says, and every page can be found."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from jq.cli.app import main

pytestmark = pytest.mark.usefixtures("quick_xla")

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def blocks(kind: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language == kind]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the README's my.py and an input for it, as the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "my", raising=False)
    (tmp_path / "my.py").write_text(blocks("python")[0])
    np.savez(tmp_path / "in.npz", arg0=np.zeros((8, 256), np.float32))
    return tmp_path


def test_the_commands_work(clone: Path) -> None:
    text = "\n".join(blocks("")).replace("\\\n", "")
    lines = [shlex.split(line, comments=True) for line in text.splitlines()]
    commands = [line[1:] for line in lines if line[:1] == ["jaxq"]]
    assert {c[0] for c in commands} == {"explain", "compile", "compare", "inspect", "run", "bench"}
    for command in commands:
        assert main([*command, "-q"]) == 0, command
    assert np.load(clone / "out.npz")["out0"].shape == (8, 256)


def test_the_python_example_works(clone: Path) -> None:
    names: dict[str, object] = {}
    exec(blocks("python")[1], names)
    assert np.shape(names["outputs"]) == (8, 256)
    assert (clone / "compiled").is_dir()


DOCS = ROOT / "docs"
PAGES = sorted(str(p.relative_to(ROOT)) for p in DOCS.rglob("*.md"))


def test_every_page_is_in_the_navigation() -> None:
    found = re.findall(r": (\S+\.(?:md|ipynb))$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [p for kind in ("*.md", "*.ipynb") for p in DOCS.rglob(kind)]
    assert sorted(found) == sorted(str(p.relative_to(DOCS)) for p in pages)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", *PAGES])
def test_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(link).exists(), f"{page}: {link}"


READ_BY_OTHERS = {"environment.sh", "minilm_subset.py"}


@pytest.mark.parametrize(
    "script", sorted(p.name for p in (ROOT / "scripts").iterdir() if p.is_file())
)
def test_scripts_can_be_run(script: str) -> None:
    """The docs run them as commands: a first line that names the interpreter, and the run bit."""
    path = ROOT / "scripts" / script
    runs = path.read_text().startswith("#!") and os.access(path, os.X_OK)
    assert runs or script in READ_BY_OTHERS
