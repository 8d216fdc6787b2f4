"""Docstrings are sentences of their own, as the site and editors show them."""

from __future__ import annotations

import ast

from tests.docs.blocks import ROOT

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)


def test_no_docstring_begins_in_the_middle_of_a_sentence() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in sorted((ROOT / "jq").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node))
        if text.startswith(("Of ", "And ", "Or ", "But "))
    ]
    assert not found
