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


def size(count: float) -> str:
    """Bytes for people, in powers of 1024."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"
