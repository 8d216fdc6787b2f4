"""Tables for people, as plain text."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType


def to_text(*parts: RenderableType, width: int = 140) -> str:
    """What rich would print, without colours."""
    out = io.StringIO()
    console = Console(file=out, width=width, no_color=True)
    for part in parts:
        console.print(part)
    return out.getvalue().rstrip()


def to_html(*parts: RenderableType, width: int = 140) -> str:
    """What rich would print, as HTML for a notebook."""
    console = Console(file=io.StringIO(), width=width, record=True)
    for part in parts:
        console.print(part, markup=not isinstance(part, str), highlight=False)
    return console.export_html(code_format="<pre>{code}</pre>", inline_styles=True)


def size(count: float) -> str:
    """Bytes for people, in powers of 1024."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def groups(
    records: Sequence[Mapping[str, Any]], *keys: str
) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Records that agree in `keys`, together, in the order of their first."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for record in records:
        found.setdefault(tuple(record[key] for key in keys), []).append(record)
    return found
