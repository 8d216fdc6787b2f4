"""The layers of the architecture page hold: imports of our own modules go leftwards only."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import jq

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "jq").rglob("*.py"))

# Modules of JAX that are no promise of its makers: read in one place.
UNSTABLE = ("jax._src", "jax.experimental", "jax.extend", "jax.interpreters")

ENTRIES = 18  # of the package, besides `__init__.py`, `__main__.py` and `py.typed`

# Who may import what from outside. Everything else goes through these. A name stands for a module,
# or for the modules of a folder but not of its folders; with `.*` for all that lies in it.
OUTSIDE = {
    "jaxlib": ("ir", "base.from_jax"),
    "iree": ("iree.*", "kernels.*", "artifact.parameters"),
    "jax": (
        "base.tree",
        "base.from_jax",
        "frontends.tracing",
        "frontends.trainable",
        "frontends.onnx.*",
        "frontends.tosa",
        "frontends.tosa.*",
        "frontends.frameworks",
        "models.*",
        "language.decoder.*",
        "ir.oracle.loaded",
        "ir.autodiff",
    ),
}


def module_name(path: Path) -> str:
    """`ir.types` for jq/ir/types.py; the package itself is `jq`, `__main__` is `cli`."""
    parts = path.relative_to(ROOT / "jq").with_suffix("").parts
    name = ".".join(part for part in parts if part != "__init__")
    return {"": "jq", "__main__": "cli"}.get(name, name)


def layers() -> dict[str, int]:
    """Rank of every layer, read from the document that defines the order."""
    text = (ROOT / "docs/internals/architecture.md").read_text()
    line = re.search(r"^`(base <- .*)`$", text, re.MULTILINE)
    assert line, "docs/internals/architecture.md has no line of layers"
    return {
        name.strip(): rank
        for rank, group in enumerate(line[1].split("<-"))
        for name in group.strip(" {}").split(",")
    }


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of every import, also inside functions."""
    package = ("jq", *path.relative_to(ROOT / "jq").parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            source = ".".join((*base, *filter(None, [node.module])))
            yield from ((node.lineno, f"{source}.{alias.name}") for alias in node.names)


def at_home(module: str, home: str) -> bool:
    """True if an entry of `OUTSIDE` stands for a module."""
    if home.endswith(".*"):
        return f"{module}.".startswith(home[:-1])
    return home in (module, module.rpartition(".")[0])


def violations(path: Path, ranks: dict[str, int]) -> Iterator[str]:
    module = module_name(path)
    layer = module.split(".")[0]
    for line, name in imported(path):
        top, *rest = name.split(".")
        allowed = OUTSIDE.get(top)
        if allowed and not any(at_home(module, home) for home in allowed):
            yield f"{path.relative_to(ROOT)}:{line} imports {name}; only {allowed} may"
        if f"{name}.".startswith(tuple(f"{u}." for u in UNSTABLE)) and module != "base.from_jax":
            yield f"{path.relative_to(ROOT)}:{line} imports {name}; only base.from_jax may"
        target = rest[0] if rest else "jq"
        if top == "jq" and target != layer:
            if target not in ranks and target not in {module_name(f).split(".")[0] for f in FILES}:
                target = "jq"  # a name of the package itself: `from jq import Model`
            assert target in ranks, f"docs/internals/architecture.md gives {target!r} no layer"
            if ranks[target] >= ranks[layer]:
                yield f"{path.relative_to(ROOT)}:{line}: {layer} imports {target}"


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_go_leftwards(path: Path) -> None:
    ranks = layers()
    layer = module_name(path).split(".")[0]
    assert layer in ranks, f"docs/internals/architecture.md gives {layer!r} no layer"
    assert list(violations(path, ranks)) == []


def dotted(path: Path) -> str:
    """`jq.ir.types` for jq/ir/types.py."""
    return ".".join(p for p in path.relative_to(ROOT).with_suffix("").parts if p != "__init__")


def imports() -> dict[str, set[str]]:
    """The modules that each module of ours imports, also inside functions and for types alone."""
    modules = {dotted(path) for path in FILES}
    graph: dict[str, set[str]] = {}
    for path in FILES:
        names = {name for _, name in imported(path)}
        found = {n if n in modules else n.rpartition(".")[0] for n in names} & modules
        graph[dotted(path)] = found - {dotted(path)}
    return graph


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """A circle in a graph, from one of its nodes back to it; empty where there is none."""
    done: set[str] = set()

    def walk(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for other in sorted(graph[node]):
            if found := walk(other, [*path, node]):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := walk(node, []))), [])


def test_a_circle_is_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_circle_of_imports() -> None:
    """Not within a folder either, and not `if TYPE_CHECKING`."""
    assert cycle(imports()) == []


def wing(module: str) -> str:
    """`ir` of `jq.ir.types`; `jq` of the package itself."""
    return module.removeprefix("jq.").split(".")[0]


def test_no_circle_of_wings() -> None:
    graph: dict[str, set[str]] = {}
    for module, others in imports().items():
        graph.setdefault(wing(module), set()).update(map(wing, others))
    assert cycle({name: others - {name} for name, others in graph.items()}) == []


def test_the_package_has_few_entries() -> None:
    there = {path.relative_to(ROOT / "jq").parts[0] for path in FILES}
    wings = {Path(name).stem for name in there} - {"__init__", "__main__"}
    assert len(wings) <= ENTRIES
    assert wings.isdisjoint(jq.__all__), "a module would take the place of a function"


def test_descriptions_of_kernels_know_no_compiler() -> None:
    """Shapes, packing and references are read without IREE."""
    script = "import jq.kernels, sys; print([m for m in sys.modules if m.startswith('iree')])"
    run = [sys.executable, "-c", script]
    found = subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "[]"


def test_no_folder_is_crowded() -> None:
    for folder in {path.parent for path in FILES}:
        assert len(list(folder.glob("*.py"))) <= 25, f"split {folder.relative_to(ROOT)}"
