"""The page stands alone: every link has its target, nothing comes from a network, it renders."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from jq.cli.app import main
from jq.page.parts import histogram, number, rebinned

SOURCE = (
    "from jq.models.zoo.digits_cnn import build\ndef model(): return build(width=4, epochs=1)\n"
)
VOID = {"meta", "br", "rect", "line"}


class Reader(HTMLParser):
    """Collects ids, references and rows, and checks that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for key, value in attrs:
            if key == "id":
                self.ids.append(value or "")
            if key in ("href", "src", "action", "data"):
                self.links.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("page")
    (folder / "digits.py").write_text(SOURCE)
    model, out = f"{folder}/digits.py:model", folder / "out"
    compiled = ["compile", model, "--pipeline", "int8-static", "-o", str(out), "-q"]
    assert main([*compiled, "--set", "recovery=false"]) == 0
    arguments = ["report", model, str(out), "-o", str(folder / "report.html"), "-q"]
    assert main([*arguments, "--samples", "2"]) == 0
    assert main(arguments) == 2  # it exists
    return folder / "report.html"


def test_the_page_stands_alone(page: Path) -> None:
    text, reader = page.read_text(), Reader()
    reader.feed(text)
    assert reader.open == []
    assert len(set(reader.ids)) == len(reader.ids)
    assert {link.removeprefix("#") for link in reader.links} == set(reader.ids)
    assert not re.search(r"https?://|url\(|@import", text)
    assert reader.tags.count("svg") == 4 + 4  # weights and activations of four layers
    for word in ("dense/kernel", "conv1/kernel", "int8 per-channel symmetric", "median ms"):
        assert word in text


def test_it_renders(page: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        pytest.skip("needs chromium")
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run"
    flags += " --disable-background-networking --disable-component-update --disable-sync"
    command = [chromium, *flags.split(), f"--user-data-dir={page.parent / 'profile'}"]
    made = subprocess.run(
        [*command, "--virtual-time-budget=2000", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert made.stdout.count("<section") == 7
    assert "sortable" in made.stdout


def test_histograms() -> None:
    edges, counts = rebinned(np.arange(131.0), np.ones(130))
    assert counts.sum() == 130 and len(counts) <= 64 and len(edges) == len(counts) + 1
    assert edges[0] == 0 and edges[-1] >= 130
    drawn = histogram("<w>", np.arange(5.0), np.array([1, 0, 4, 1]), (0.0, 3.0), "note")
    assert "&lt;w&gt;" in drawn and "<w>" not in drawn
    assert drawn.count("<rect") == 3 and drawn.count('class="out"') == 1
    assert drawn.count('class="clip"') == 2


def test_numbers() -> None:
    found = [number(v) for v in (1.23456789, float("inf"), float("-inf"), float("nan"), None)]
    assert found == ["1.2346", "∞", "−∞", "–", "–"]
