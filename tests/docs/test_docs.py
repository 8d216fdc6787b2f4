"""The pages do what they say: their blocks run, their links lead somewhere, the site builds."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import onnx
import pytest
from nbconvert import MarkdownExporter
from onnx import TensorProto, helper, numpy_helper

import jq.models
from jq.language.build import write
from tests.docs.blocks import READ, ROOT, Reader, blocks
from tests.support.decoders import CASES, write_gguf

DOCS = ROOT / "docs"
NOTEBOOKS = sorted(DOCS.rglob("*.ipynb"))
PAGES = sorted(
    str(p.relative_to(ROOT)) for p in DOCS.rglob("*.md") if p.with_suffix(".ipynb") not in NOTEBOOKS
)
TOP = ["README.md", "CONTRIBUTING.md", "SECURITY.md"]
BLOCKS = {page: blocks(ROOT / page) for page in [*TOP, *PAGES]}
FIRST = BLOCKS["docs/tutorials/first-model.md"]
RUN = [page for page, found in BLOCKS.items() if any(b.language not in READ for b in found)]

# The built-in models of these names, small: the pages are about commands, not about size.
SMALL: dict[str, dict[str, Any]] = {
    "digits_cnn": {"width": 4, "epochs": 1},
    "mobilenet": {"depth": 0.25, "width": 0.25, "image": 32},
    "resnet": {"depth": 14, "width": 8, "image": 32},
}


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Small models, and programs of language models compiled in this process."""
    built: dict[str, Any] = {}

    def get(name: str) -> Any:
        if name not in built:
            built[name] = jq.models.build(name, **SMALL.get(name, {}))
        return built[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jq.models, "get", get)
        patch.setattr("jq.language.session.COSTS", {1: 1.0, 4: 1.7, 16: 3.35})
        patch.setattr("jq.language.programs.build", write)
        yield


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    """Somebody who has the model of the first page, and files of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "my", raising=False)
    found = Reader()
    for block in FIRST:
        if block.title == "my.py":
            found.follow(block)
    return found


def own_files(page: str) -> None:
    """Files that a reader of this page has besides."""
    if page.endswith("security.md"):
        np.savez("in.npz", arg0=np.zeros((32, 8, 8, 1), np.float32))
    elif page.endswith(("language-models.md", "gguf.md", "README.md")):
        q8 = gguf.GGMLQuantizationType.Q8_0
        with pytest.MonkeyPatch.context() as patch:  # one layer, and a context of usual length
            config, shapes = CASES["llama"]["config"], CASES["llama"]["shapes"]
            patch.setitem(config, "max_position_embeddings", 4096)
            patch.setitem(config, "num_hidden_layers", 1)
            kept = {name: shape for name, shape in shapes.items() if ".layers.1." not in name}
            patch.setitem(CASES["llama"], "shapes", kept)
            write_gguf("llama", Path("model.gguf"), lambda _, a: q8 if a.ndim > 1 else None)
        shutil.copy("model.gguf", "in.gguf")
        Path("text.txt").write_text("a b c d e f " * 24)
    if page == "README.md":
        write_onnx(Path("model.onnx"))
        np.savez("samples.npz", x=np.ones((4, 1, 64), np.float32))


def write_onnx(path: Path) -> None:
    """A product, whose rows are a symbolic dimension."""
    weight = numpy_helper.from_array(np.ones((64, 32), np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 32])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weight]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


@pytest.mark.usefixtures("quick_xla")
@pytest.mark.parametrize("page", RUN)
def test_the_blocks_of_a_page_run(page: str, reader: Reader) -> None:
    own_files(page)
    titles = [block.title for block in BLOCKS[page][1:]]
    for block, after in zip_longest(BLOCKS[page], titles):
        reader.quiet = after != "printed"
        reader.follow(block)


@pytest.mark.usefixtures("quick_xla", "reader")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda p: p.stem)
def test_the_cells_of_a_notebook_run(notebook: Path) -> None:
    names: dict[str, Any] = {}
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), notebook.name, "exec"), names)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda p: p.stem)
def test_the_page_of_a_notebook_shows_it(notebook: Path) -> None:
    text, _ = MarkdownExporter().from_filename(str(notebook))
    assert notebook.with_suffix(".md").read_text() == text, "jupyter nbconvert --to markdown FILE"


def test_every_page_is_in_the_navigation() -> None:
    pages = r"^ +- .*: (\S+\.md)$"  # where a page has moved to has no dash
    found = re.findall(pages, (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(found) == sorted(str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md"))


def test_the_site_builds(tmp_path: Path) -> None:
    """Strictly: every link and every anchor in it leads somewhere, every name is found."""
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)  # beside it, the site is written
    shutil.copytree(DOCS, tmp_path / "docs")
    (tmp_path / "jq").symlink_to(ROOT / "jq")
    build = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "site"
    for page in moved():
        address = page.removeprefix("docs/").removesuffix(".md")
        text = (site / address / "index.html").read_text()
        (target,) = re.findall(r'rel="canonical" href="([^"]+)"', text)
        assert (site / address / target / "index.html").is_file(), address


def moved() -> set[str]:
    """Pages that the history had and the docs have not: links to them still lead somewhere."""
    log = ["git", "log", "--format=", "--diff-filter=DR", "--name-status", "--", "docs"]
    found = subprocess.run(log, cwd=ROOT, capture_output=True, text=True).stdout
    old = {line.split("\t")[1] for line in found.splitlines() if line}
    return {page for page in old if page.endswith(".md") and not (ROOT / page).exists()}


@pytest.mark.parametrize("page", TOP)
def test_links_above_the_site_lead_somewhere(page: str) -> None:
    """Absolute in the README, which is shown elsewhere too."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    source = urls["Source"]  # the one place that says where the repository is
    assert all(url.startswith(source) for url in urls.values())
    text = (ROOT / page).read_text()
    links = re.findall(r"\]\(([^)#]+)\)", text) + re.findall(r"^\[.+\]: (\S+)$", text, re.MULTILINE)
    for link in links:
        path = link.removeprefix(f"{source}/blob/main/")
        if "://" not in path:
            assert (ROOT / path).exists(), f"{page}: {link}"
            assert path != link or page != "README.md", f"{link} is not absolute"
    for named in re.findall(r"\[[^\]]+\]\[(\w[\w-]*)\]", text):
        assert f"\n[{named}]: " in text, f"{page}: {named}"
    others = [a for a in re.findall(r"https://github\.com/[\w.-]+/jaxq\b", text) if a != source]
    assert not others


def test_the_table_of_formats_by_op_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every format has its row; four of them, of different families, are found anew."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])
    table = importlib.import_module("support_table")
    text = (DOCS / "reference/support.md").read_text()
    assert re.findall(r"^\| `(\w+)`", text, re.MULTILINE) == sorted(table.Format.registry)
    for name in ("int8", "int4", "mxfp4", "q4_k"):
        assert table.row(name) in text, "write it again: scripts/support_table.py"


def test_the_pictures_are_of_these_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])
    importlib.import_module("benchmarks.pictures").main(tmp_path)
    drawn, there = (
        {path.name: path.read_text() for path in folder.glob("*.svg")}
        for folder in (tmp_path, DOCS / "images")
    )
    assert drawn == there, "draw them again: scripts/benchmark.py pictures"


def test_tutorials_write_into_folders_of_their_own() -> None:
    """All of them can be followed in one folder: `scripts/check.py tour`."""
    taken: dict[str, str] = {}
    for page, found in BLOCKS.items():
        text = "\n".join(b.text for b in found if b.language == "sh").replace("\\\n", " ")
        if page.startswith("docs/tutorials/"):
            for folder in re.findall(r"^jaxq compile .* -o (\S+)$", text, re.MULTILINE):
                assert folder not in taken, f"{page}: {folder} is of {taken[folder]}"
                taken[folder] = page


def test_the_landing_page() -> None:
    """A picture of the way, a chart beside the peers, the source, and nothing to run that fails."""
    landing = (DOCS / "index.md").read_text()
    pictures = re.findall(r"!\[[^\]]+\]\((\S+)\)", landing)
    assert "images/levels.svg" in pictures
    assert any("error-time" in picture for picture in pictures)
    assert all((DOCS / picture).is_file() for picture in pictures)
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert f"]({urls['Source']})" in landing
    for page in (DOCS / "index.md", ROOT / "README.md"):  # the package is not on PyPI
        assert "pip install jaxq` fails" in page.read_text()
        shell = [b.text for b in blocks(page) if b.language == "sh"]
        assert shell and not re.search(r"pip install jaxq\b", "\n".join(shell))
    benchmarks = (DOCS / "reference/benchmarks.md").read_text()
    assert len(re.findall(r"images/error-time\S+\.svg", benchmarks)) >= 3


READ_BY_OTHERS = {"environment.sh", "minilm_subset.py"}


@pytest.mark.parametrize(
    "script", sorted(p.name for p in (ROOT / "scripts").iterdir() if p.is_file())
)
def test_scripts_can_be_run(script: str) -> None:
    """The docs run them as commands: a first line that names the interpreter, and the run bit."""
    path = ROOT / "scripts" / script
    runs = path.read_text().startswith("#!") and os.access(path, os.X_OK)
    assert runs or script in READ_BY_OTHERS
