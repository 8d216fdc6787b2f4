"""Text files are UTF-8 wherever we run, and a Python that we start looks at no folder of a user."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "jq").rglob("*.py"))
NAMED = ("read_text", "write_text")
STARTS = {"text", "universal_newlines"}


def without_encoding(tree: ast.AST) -> Iterator[int]:
    """Lines of calls that leave the encoding of text to the user's locale."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        given = {keyword.arg for keyword in node.keywords}
        named = isinstance(node.func, ast.Attribute) and node.func.attr in NAMED
        if (named or given & STARTS) and "encoding" not in given:
            yield node.lineno


def test_a_call_without_an_encoding_is_found() -> None:
    text = "p.read_text()\np.write_text('', encoding='utf-8')\nrun(a, text=True)\nread_text(p)"
    assert list(without_encoding(ast.parse(text))) == [1, 3]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_text_has_an_encoding(path: Path) -> None:
    assert list(without_encoding(ast.parse(path.read_text(encoding="utf-8")))) == []


def test_python_is_started_in_one_place() -> None:
    """`python -m` and `-c` look for modules in the current directory."""
    users = [path for path in FILES if "sys.executable" in path.read_text(encoding="utf-8")]
    assert users == [ROOT / "jq/base/system/child.py"]
