"""The page of what is refused, made of outcomes, and read again by a test."""

from __future__ import annotations

import re
from collections.abc import Sequence

from suites.outcome import REFUSED, Outcome

HEAD = """# What is refused

JAX ships cases of its primitives, 5,594 in 132 groups. These are the ones that the pipeline `float`
refuses, by group and reason, each with one of its cases. All others are to give the numbers of
`jax.jit`: `tests/suites` holds a fixed sample to that, `scripts/suite.py harnesses` any number of
them. A refusal is a `UserError`: it says what is refused, where, and what to do.

Written by `scripts/suite.py harnesses --refusals docs/reference/refusals.md`; do not edit.

| group | cases | one of them | what the error says |
|---|---|---|---|
"""
_ROW = re.compile(r"^\| `(\w+)` \| \d+ \| `([^`]+)` \| (.+) \|$", re.MULTILINE)


def page(outcomes: Sequence[Outcome]) -> str:
    """The page as Markdown."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in outcomes:
        if one.verdict == REFUSED:
            found.setdefault((one.group, one.reason), []).append(one.name)
    return HEAD + "".join(
        f"| `{group}` | {len(names)} | `{min(names)}` | {reason.replace('|', chr(92) + '|')} |\n"
        for (group, reason), names in sorted(found.items())
    )


def rows(text: str) -> list[tuple[str, str, str]]:
    """Group, case and message of every line of the page."""
    return [(g, name, reason.replace("\\|", "|")) for g, name, reason in _ROW.findall(text)]
