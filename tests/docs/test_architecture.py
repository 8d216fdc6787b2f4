"""What the pages on the internals name is there: files and folders, classes, functions, passes."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from jq.ops.lookup import known_ops
from jq.passes.base import known_passes

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("architecture", "kernels")
FOLDERS = ("", "jq/", "jq/kernels/", "jq/passes/", "docs/")
EXAMPLES = {"layer1/attn/q_proj/kernel"}  # the name of a weight
OF_OTHERS = {
    "stablehlo",
    "jax",
    "jit",
    "composite",
    "vdpbf16ps",
    "vpmaddwd",
    "vpmaddubsw",
    "tileloadd",
}


def quoted(page: str) -> set[str]:
    """What stands in backquotes outside of blocks of code."""
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


def test_every_folder_of_the_package_is_named() -> None:
    """A reader who looks for what a folder is for finds it on the page."""
    named = {part for path in quoted("architecture") for part in re.findall(r"jq/(\w+)/", path)}
    folders = {path.parent.name for path in (ROOT / "jq").glob("*/__init__.py")}
    assert folders - named == set()


def test_every_layer_is_a_module() -> None:
    text = (ROOT / "docs/internals/architecture.md").read_text()
    line = re.search(r"^`(errors <- .*)`$", text, re.MULTILINE)
    assert line
    names = set(re.findall(r"\w+", line[1])) - {"jq"}
    modules = {path.stem for path in (ROOT / "jq").glob("*.py")}
    folders = {path.parent.name for path in (ROOT / "jq").glob("*/__init__.py")}
    assert names - modules - folders == set()
