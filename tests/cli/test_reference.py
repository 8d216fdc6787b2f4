"""The page of options is what the commands define."""

from __future__ import annotations

from pathlib import Path

from jq.cli.reference import markdown

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "options.md"


def test_the_page_lists_every_option() -> None:
    command = "python -m jq.cli.reference > docs/reference/options.md"
    assert PAGE.read_text() == markdown(), f"write it again: {command}"


def test_it_has_commands_of_groups_and_both_names_of_a_flag() -> None:
    text = markdown()
    assert "## `jaxq cache" in text and "`--cache`, `--no-cache`" in text
    assert "`any\\|verify`" in text and "| `-o`, `--output` | `DIR` | required |" in text
