"""The page stands alone: every link has its target, nothing comes from a network, it renders, and
what a model calls its layers stays text."""

from __future__ import annotations

import html
import json
import math
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import jq
from jq.cli.app import main
from jq.driver.comparison.result import LayerError
from jq.reporting.measuring.verdict import number
from jq.reporting.report.document import SECTIONS, environment, rebinned
from jq.reporting.report.facts import Shape
from jq.reporting.report.suggest import without_own_noise

PAGE = os.fsdecode(b"page \xff.html")  # a name is bytes, and not always text
EVIL = "<img src=x onerror=alert(1)>"
SOURCE = f"""
import numpy as np
import jq

EVIL = {EVIL!r}
rng = np.random.default_rng(0)
draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)


def fn(params, x):
    hidden = jnp.tanh(x @ params[EVIL]["kernel"])
    return hidden + hidden @ params["back"]["kernel"] @ params["last'*"]["kernel"]


import jax.numpy as jnp

params = {{name: {{"kernel": draw(64, 64) / 8}} for name in (EVIL, "back", "last'*")}}
samples = [(draw(8, 64),) for _ in range(2)]
model = jq.Model(fn, params, samples[0], samples, samples, name="</title><script>evil()</script>")
"""
RULES = ("back*: weights.format=int4, weights.granularity=per-block", "last*: float")
VOID = {"meta", "br", "rect", "line", "circle", "path", "input"}


class Reader(HTMLParser):
    """Collects ids, references and rows, and checks that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.layers: set[str] = set()
        self.nodes: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        found = {key: value or "" for key, value in attrs}
        if "id" in found:
            self.ids.append(found["id"])
        self.links += [found[key] for key in ("href", "src", "action", "data") if key in found]
        self.layers |= set(json.loads(found.get("data-layers", "[]")))
        if "data-layer" in found:
            self.nodes[found["data-layer"]] = found["class"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, its artifact, the page and the files for Model Explorer."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "evil.py").write_text(SOURCE)
    model, out = f"{folder}/evil.py:model", folder / "out"
    rules = [argument for rule in RULES for argument in ("--rule", rule)]
    compiled = ["compile", model, "--pipeline", "int8-static", "-o", str(out), "-q", *rules]
    assert main([*compiled, "--set", "recovery=false"]) == 0
    arguments = ["report", model, str(out), "-o", str(folder / PAGE), "-q"]
    arguments += ["--seconds", "0.05", "--model-explorer", str(folder / "explorer")]
    assert main([*arguments, "--samples", "2"]) == 0
    assert main(arguments) == 2  # it exists
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / PAGE).read_text()


@pytest.fixture(scope="module")
def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    return reader


def test_the_page_stands_alone(page: str, read: Reader) -> None:
    assert read.open == []
    assert len(set(read.ids)) == len(read.ids)
    assert {link.removeprefix("#") for link in read.links} == set(read.ids) - {"net", "detail"}
    assert not re.search(r"https?://|url\(|@import", page)
    weights, activations, graph = 2, 3, 1
    assert read.tags.count("svg") == weights + activations + graph
    for word in ("back/kernel", "int8 per-channel symmetric", "median ms"):
        assert word in page


def test_names_of_a_model_stay_text(page: str, read: Reader) -> None:
    assert "img" not in read.tags and read.tags.count("script") == 1
    assert EVIL not in page and "<script>evil" not in page
    assert f"{EVIL}/kernel" in read.layers  # as data, for the script to compare


def test_layers_are_tied_to_the_graph(read: Reader) -> None:
    names = {f"{EVIL}/kernel", "back/kernel", "last'*/kernel"}
    assert read.layers == names == set(read.nodes)
    assert "float" in read.nodes["last'*/kernel"].split()
    assert re.search(r"\ba[0-5] o[0-5]\b", read.nodes["back/kernel"])


def test_a_verdict_and_rules_that_can_be_pasted(folder: Path, page: str) -> None:
    assert "The worst layer is back/kernel" in page
    assert "of the time of the compiled float model" in page
    found = re.findall(r"<code>--rule &#39;(.*?)&#39;</code>", page)
    assert found[0] == "back/kernel: weights.format=int8, weights.granularity=per-channel"
    assert "They are suggestions and were not run" in page
    assert re.search(r"from \d+\.\d to at most \d+\.\d dB|not known", page)
    command = html.unescape(re.findall(r"<pre>(jaxq compile .*)\n", page)[0])
    _, _, model, *options = shlex.split(command)
    assert "op_types" not in command  # as the pipeline has it
    assert model == f"{folder}/evil.py:model" and options[:4] == ["-o", "OUT2", "--rule", found[0]]
    own = [w for r in RULES for w in ("--rule", r.replace(": float", ": format=float"))]
    assert options[-6:] == ["--set", "recovery=false", *own]
    plan = jq.plan(f"{folder}/evil.py:model", rules=[found[0], *RULES])
    assert plan.unused_rules == (RULES[0].partition(":")[0],)  # the new one came first
    assert "int8" in plan["back/kernel"].to_dict()["weights"]


def test_a_suggested_rule_helps(folder: Path, page: str) -> None:
    """As it stands on the page, given to the same compile: the output is closer."""
    found = re.findall(r"<code>--rule &#39;(.*?)&#39;</code>", page)
    model, out = f"{folder}/evil.py:model", str(folder / "mended")
    rules = [argument for rule in (found[0], *RULES) for argument in ("--rule", rule)]
    compiled = ["compile", model, "--pipeline", "int8-static", "-o", out, "-q", *rules]
    assert main([*compiled, "--set", "recovery=false"]) == 0
    before, after = (jq.compare(model, jq.load(folder / name)) for name in ("out", "mended"))
    assert after.outputs[0].sqnr_db > before.outputs[0].sqnr_db + 3
    hope = re.findall(r"from \d+\.\d to at most (\d+\.\d) dB", page)
    layers = jq.compare(model, jq.load(out), layers=True).layers
    back = next(layer for layer in layers if layer.name == "back/kernel")
    assert back.sqnr_db < float(hope[0]) + 0.1


def test_how_the_page_was_made_is_in_the_page_alone(folder: Path, page: str) -> None:
    for words in ("page made", "jaxq report ", "--samples 2", "processor", "recovery=False"):
        assert words in page
    manifest = (folder / "out" / "manifest.json").read_text()
    assert str(folder) not in manifest and "page made" not in manifest


def test_files_for_model_explorer(folder: Path) -> None:
    """The keys are those of `node_data_builder.py` and `graph_builder.py` of its package."""
    (graph,) = json.loads((folder / "explorer" / "graph.json").read_text())["graphs"]
    nodes = {node["id"]: node for node in graph["nodes"]}
    for node in nodes.values():
        assert set(node) == {"id", "label", "namespace", "incomingEdges", "attrs"}
        assert all(edge["sourceNodeId"] in nodes for edge in node["incomingEdges"])
    for figure in ("sqnr_db", "isolated_sqnr_db", "cosine"):
        data = json.loads((folder / "explorer" / f"{figure}.json").read_text())[graph["id"]]
        scopes = {nodes[i]["namespace"] for i in data["results"]}
        assert scopes == {EVIL, "back", "last'*"}
        limits = [limit["value"] for limit in data.get("thresholds", ())]
        assert limits == sorted(limits)


def test_it_renders(folder: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        pytest.skip("needs chromium")
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run"
    flags += " --disable-background-networking --disable-component-update --disable-sync"
    command = [chromium, *flags.split(), f"--user-data-dir={folder / 'profile'}"]
    uri = (folder / PAGE).as_uri()
    made = subprocess.run(
        [*command, "--virtual-time-budget=2000", "--dump-dom", uri],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    assert made.count("<section") == len(SECTIONS)
    assert "<img" not in made
    detail = made[made.index('<aside id="detail"') : made.index("</aside>")]
    assert "<h3>back/kernel</h3>" in detail  # the script chose the worst layer
    assert detail.count("<svg") == 2 and "rule to try" in detail
    assert re.search(r'<div class="filter">', made)  # shown by the script


def test_what_is_left_without_a_layer_s_own_noise() -> None:
    """Noise adds up in powers: 1 % and 3 % of the signal's power are 4 %."""
    layer = LayerError("w", "dot_general", 0.0, 1.0, 0.0, 0.0, 1.0, 0.0)
    both, own, rest = (-10 * math.log10(share) for share in (0.04, 0.01, 0.03))
    found = without_own_noise(replace(layer, sqnr_db=both, isolated_sqnr_db=own))
    assert found == pytest.approx(rest)
    assert without_own_noise(replace(layer, sqnr_db=own, isolated_sqnr_db=both)) is None


def test_histograms() -> None:
    edges, counts = rebinned(np.arange(131.0), np.ones(130))
    assert counts.sum() == 130 and len(counts) <= 64 and len(edges) == len(counts) + 1
    assert edges[0] == 0 and edges[-1] >= 130
    shape = Shape("<w>", np.arange(5.0), np.array([1, 0, 4, 1]), (0.0, 3.0), "note", ())
    page = environment().from_string('{% from "pieces.html" import histogram %}{{ histogram(s) }}')
    drawn = page.render(s=shape)
    assert "&lt;w&gt;" in drawn and "<w>" not in drawn
    assert drawn.count("<rect") == 3 and drawn.count('class="out"') == 1
    assert drawn.count('class="clip"') == 2


def test_numbers() -> None:
    found = [number(v) for v in (1.23456789, float("inf"), float("-inf"), float("nan"), None)]
    assert found == ["1.2346", "∞", "−∞", "–", "–"]
