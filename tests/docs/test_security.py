"""The tests that the page on security names are there."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT

NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_every_named_test_is_there() -> None:
    found = NAMED.findall((ROOT / "docs/how-to/security.md").read_text())
    assert len(found) > 30
    for file, name in found:
        assert f"def {name}" in (ROOT / file).read_text() or not name, f"{file}::{name}"
