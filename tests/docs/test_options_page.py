"""The page of options is what the commands define."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from options_page import markdown  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "options.md"


def test_the_page_lists_every_option() -> None:
    command = "scripts/options_page.py > docs/reference/options.md"
    assert PAGE.read_text() == markdown(), f"write it again: {command}"


def test_it_has_commands_of_groups_and_both_names_of_a_flag() -> None:
    text = markdown()
    assert "## `jaxq cache" in text and "`--cache`, `--no-cache`" in text
    assert "`any\\|verify`" in text and "| `-o`, `--output` | `DIR` | required |" in text
