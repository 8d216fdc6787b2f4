"""How long stages tell their callers how far they are."""

from __future__ import annotations

from collections.abc import Callable

# Told the name of what runs now and the share of it that is done (None: not known).
Progress = Callable[[str, float | None], None]


def silent(stage: str, share: float | None) -> None:
    """Progress that nobody looks at."""
