"""Packages that may not be installed."""

from __future__ import annotations

from pathlib import Path

import pytest

import jq
from jq.base.registry import need


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "signatures need the Python package package_of_a_test"),
        ("import nothing_like_it", "signatures need the Python package nothing_like_it"),
        (
            "raise ImportError('libx.so: no such file\\nmore')",
            "signatures need the Python package package_of_a_test, which does not load: "
            "libx.so: no such file",
        ),
    ],
    ids=["not there", "without what it needs", "broken"],
)
def test_one_line_says_what_is_missing(text: str | None, message: str, tmp_path: Path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    if text is not None:
        (tmp_path / "package_of_a_test.py").write_text(text)
    with pytest.raises(jq.UserError) as raised:
        need("package_of_a_test", "sign", "signatures need")
    assert raised.value.message == message
    assert raised.value.hint == 'pip install "jaxq[sign]"'
