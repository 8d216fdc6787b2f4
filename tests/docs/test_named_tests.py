"""The tests are there that the pages name which say what is held by a test."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT

NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("page", ["reference/attacks", "internals/iree"])
def test_every_named_test_is_there(page: str) -> None:
    found = NAMED.findall((ROOT / f"docs/{page}.md").read_text())
    assert len(found) > 30
    for file, name in found:
        assert f"def {name}" in (ROOT / file).read_text() or not name, f"{file}::{name}"
