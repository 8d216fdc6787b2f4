"""`jaxq cache`: what is kept between runs."""

import time
from typing import Any

import typer

from jq.cli.command import command
from jq.cli.listing import kinds
from jq.cli.output import Output

app = typer.Typer(
    name="cache",
    help="Lists, measures and clears what is kept between runs.",
    invoke_without_command=True,
    callback=kinds,
)


def contents(out: Output) -> dict[str, Any]:
    """Lists what is kept by its kind: how many entries, their bytes, when one was last used."""
    from jq.artifact.store import KINDS
    from jq.base.tables import size

    rows = [
        {
            "kind": kind,
            "what": KINDS[kind],
            "entries": len(own),
            "bytes": sum(e.bytes for e in own),
            "hours_unused": round((time.time() - max(own).used) / 3600, 1) if own else None,
        }
        for kind, own in _by_kind().items()
    ]
    shown = [row | {"size": size(row["bytes"])} for row in rows]
    out.table("kept between runs", ("kind", "what", "entries", "size", "hours_unused"), shown)
    return {"kinds": rows}


def measure(out: Output) -> dict[str, Any]:
    """Measures what is kept; beyond the limit, entries that were not used for longest go."""
    from jq.artifact.store import LIMIT, entries
    from jq.base.system.folders import cache_folder
    from jq.base.tables import size

    folder, every = cache_folder("store"), list(entries())
    used = sum(e.bytes for e in every)
    out.line(f"{folder}: {len(every)} entries, {size(used)} of at most {size(LIMIT)}")
    return {"folder": str(folder), "entries": len(every), "bytes": used, "limit_bytes": LIMIT}


def clear(
    out: Output,
    kind: list[str] | None = None,
) -> dict[str, Any]:
    """Removes what is kept: the next run computes it again.

    Args:
        kind (KIND): Only entries of this kind; may be repeated.
    """
    from jq.artifact.store import remove
    from jq.base.errors import UserError, known
    from jq.base.tables import size

    found = _by_kind()
    for name in kind or ():
        if name not in found:
            raise UserError(f"nothing of kind {name!r} is kept", hint=known(name, found))
    removed = [entry for name in kind or found for entry in found[name]]
    for entry in removed:
        remove(entry)
    freed = sum(e.bytes for e in removed)
    out.line(f"{len(removed)} entries removed, {size(freed)}")
    return {"entries": len(removed), "bytes": freed}


def _by_kind() -> dict[str, list[Any]]:
    from jq.artifact.store import KINDS, entries

    every = list(entries())
    return {kind: [e for e in every if e.kind == kind] for kind in KINDS}


for name, function in (("list", contents), ("size", measure), ("clear", clear)):
    command(f"cache {name}", example=f"jaxq cache {name}")(function)
