"""Tables for people, as plain text."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType


def to_text(*parts: RenderableType, width: int = 140) -> str:
    """What rich would print, without colours."""
    out = io.StringIO()
    console = Console(file=out, width=width, no_color=True)
    for part in parts:
        console.print(part)
    return out.getvalue().rstrip()
