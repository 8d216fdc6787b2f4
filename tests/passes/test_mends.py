"""Mends tell their defects, and every trap is told of."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from jq.passes.base import known_passes
from jq.passes.iree_mends.mend import Mend, defects
from tests.traps.helpers import is_seen

TESTS = Path(__file__).parents[1]
MENDS = {n: kind for n, kind in known_passes().items() if issubclass(kind, Mend)}


def decorated(path: Path) -> set[str]:
    """Names of the functions of a file that `trap` decorates."""
    functions = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)]
    marks = {f.name: [ast.unparse(d) for d in f.decorator_list] for f in functions}
    return {n for n, found in marks.items() if any(m.partition("(")[0] == "trap" for m in found)}


def test_every_trap_is_told_of_and_is_there() -> None:
    files = [path for path in TESTS.rglob("*.py") if "@trap" in path.read_text()]
    there = {f"{path.relative_to(TESTS)}::{name}" for path in files for name in decorated(path)}
    assert there == {trap for found in defects() for trap in found.traps}


def test_every_defect_has_a_trap_or_says_why_not() -> None:
    for found in defects():
        assert found.what and found.by and found.seen
        assert bool(found.traps) != bool(found.untrapped), found.what


def test_what_is_reported_nowhere_has_the_text_of_a_report() -> None:
    page = (TESTS.parent / "docs/internals/iree-reports.md").read_text()
    sections = [part.partition("\n") for part in page.split("\n## ")[1:]]
    ours = [d for d in defects() if d.seen.startswith("IREE") and d.traps and not d.report]
    assert [what for what, _, _ in sections] == [d.what for d in ours], "scripts/check.py reports"
    assert all("```mlir" in text or "makes the module" in text for _, _, text in sections)


def test_no_other_test_is_expected_to_fail() -> None:
    allowed = {"helpers.py", "test_traps_script.py", "test_mends.py"}
    others = [path for path in TESTS.rglob("*.py") if path.name not in allowed]
    assert not [path for path in others if "mark.xfail" in path.read_text()]


def test_mends_lie_together() -> None:
    folder = "jq.passes.iree_mends."
    found = {n for n, kind in known_passes().items() if kind.__module__.startswith(folder)}
    assert found == set(MENDS)


@pytest.mark.parametrize(
    ("seen", "version", "there"),
    [
        ("IREE 3.13", (0, 12), True),
        ("jaxlib 0.10, 0.11", (0, 11), True),
        ("jaxlib 0.10, 0.11", (0, 12), False),
        ("StableHLO in jaxlib 0.10 on", (0, 13), True),
        ("jaxlib 0.12 on", (0, 10), False),
    ],
)
def test_versions(seen: str, version: tuple[int, int], there: bool) -> None:
    assert is_seen(seen, version) == there
