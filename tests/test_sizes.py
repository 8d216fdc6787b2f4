"""The size of a file that CONTRIBUTING states, and few modules that are a part of one other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "jq").rglob("*.py"))
SMALL, FEW = 60, 8  # lines of a module; modules of fewer whose one importer lies beside them


def lines(path: Path) -> int:
    return path.read_text().count("\n")


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_file_is_larger_than_stated() -> None:
    stated = re.search(r"\((\d+) at most\)", (ROOT / "CONTRIBUTING.md").read_text())
    assert stated
    found = [str(p.relative_to(ROOT)) for p in FILES if lines(p) > int(stated[1])]
    assert not found, f"divide these: {found}"


def test_few_small_modules_are_a_part_of_one_other() -> None:
    importers: dict[str, set[Path]] = {name_of(path): set() for path in FILES}
    for path in FILES:
        for name in set(imported(path)) & importers.keys() - {name_of(path)}:
            importers[name].add(path)
    found = [
        str(path.relative_to(ROOT))
        for path in FILES
        if path.name != "__init__.py" and lines(path) < SMALL
        if [p.parent for p in importers[name_of(path)]] == [path.parent]
        if path.with_name("__init__.py") not in importers[name_of(path)]  # one of a kind there
        if path.parent.name != "architectures"  # one file each
    ]
    assert len(found) <= FEW, f"merge some with the module that imports them: {found}"
