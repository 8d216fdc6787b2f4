"""Names on the internals' pages exist: files and folders, classes, functions, passes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from jq.ir.ops.lookup import known_ops
from jq.passes.base import known_passes

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("architecture", "first-change", "kernels")
FOLDERS = ("", "jq/", "jq/kernels/", "jq/passes/", "docs/")
EXAMPLES = {"layer1/attn/q_proj/kernel"}  # the name of a weight
OF_OTHERS = {
    "stablehlo",
    "jax",
    "jit",
    "composite",
    "vdpbf16ps",
    "vfmadd",
    "vpmaddwd",
    "vpmaddubsw",
    "tileloadd",
}


def quoted(page: str) -> set[str]:
    """Texts in backquotes outside of blocks of code."""
    text = (ROOT / f"docs/internals/{page}.md").read_text()
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return set(re.findall(r"`([^`\n]+)`", text))


@cache
def source() -> str:
    files = [*sorted((ROOT / "jq").rglob("*.py")), *sorted((ROOT / "tests").rglob("*.py"))]
    return "\n".join(path.read_text() for path in files)


def is_path(name: str) -> bool:
    return bool(re.fullmatch(r"[\w./<>-]+", name)) and (
        "/" in name or name.endswith((".py", ".toml"))
    )


def is_there(path: str) -> bool:
    parts = re.split(r"<\w+>", path)  # `targets/<name>.toml`: of any name
    return any(list(ROOT.glob(f"{folder}{'*'.join(parts)}".rstrip("/"))) for folder in FOLDERS)


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page: str) -> None:
    paths = {name for name in quoted(page) - EXAMPLES if is_path(name)}
    assert len(paths) > 10
    assert [path for path in sorted(paths) if not is_there(path)] == []


@pytest.mark.parametrize("page", PAGES)
def test_names_are_defined(page: str) -> None:
    """Each part of `Class.method` or `module.function` is, or is read, somewhere."""
    missing = []
    for name in sorted(quoted(page)):
        found = re.fullmatch(r"@?([A-Za-z_][\w.]*)(\(.*\))?", name)
        if not found or is_path(name):
            continue
        for part in found[1].split("."):
            known = part in known_passes() or part in known_ops() or part in OF_OTHERS
            defined = rf"(?:class|def) {part}\b|\b{part} *[:=(]|[\"'.]{part}\b|{part}\.\w+ import"
            if not known and not re.search(defined, source()):
                missing.append(name)
    assert missing == []


def test_every_wing_is_drawn() -> None:
    """In the picture and in the line of layers: the entries of the package, in one order."""
    text = (ROOT / "docs/internals/architecture.md").read_text()
    picture = re.search(r"^```text\n(cli .*?)^```$", text, re.MULTILINE | re.DOTALL)
    line = re.search(r"^`(base <- .*)`$", text, re.MULTILINE)
    assert picture and line
    drawn = [row.split()[0] for row in picture[1].splitlines()]
    layers = [re.findall(r"\w+", layer) for layer in line[1].split("<-")]
    rank = {name: i for i, layer in enumerate(layers) for name in layer if name != "jq"}
    assert drawn == sorted(rank, key=lambda name: (-rank[name], drawn.index(name)))
    folders = {path.parent.name for path in (ROOT / "jq").glob("*/__init__.py")}
    assert {*folders, "api"} == set(drawn)
