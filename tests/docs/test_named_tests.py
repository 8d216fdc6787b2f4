"""Pages name tests that exist, and the changelog stays one page."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT

NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("page", ["reference/attacks", "internals/iree"])
def test_every_named_test_is_there(page: str) -> None:
    found = NAMED.findall((ROOT / f"docs/{page}.md").read_text())
    assert len(found) > 25
    for file, name in found:
        assert f"def {name}" in (ROOT / file).read_text() or not name, f"{file}::{name}"


def test_the_changelog_is_one_page() -> None:
    assert len((ROOT / "CHANGELOG.md").read_text().split()) <= 600
