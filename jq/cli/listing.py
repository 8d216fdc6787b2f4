"""`jaxq list`: everything that there is to choose from, by name; `jaxq cache`: what is kept."""

import time
from collections.abc import Callable
from typing import Any

import typer

from jq.base.errors import UserError, known
from jq.base.tables import size
from jq.cli.command import command
from jq.cli.output import Output


def kinds(context: typer.Context) -> None:
    """Shows what can be asked for where nothing is."""
    if context.invoked_subcommand is None:
        print(context.get_help())


Rows = list[dict[str, Any]]
GROUPS = {
    name: typer.Typer(name=name, help=text, invoke_without_command=True, callback=kinds)
    for name, text in (
        ("list", "Lists pipelines, targets, formats, settings and whatever else has a name."),
        ("cache", "Lists, measures and clears what is kept between runs."),
    )
}


def formats(_: str) -> Rows:
    from jq.formats import Format

    return [{"name": n, "description": f.description} for n, f in sorted(Format.registry.items())]


def toml_files(kind: str) -> Rows:
    """Name and description of each of our data files."""
    import tomllib

    from jq.base.system.folders import data_file, data_names

    texts = {n: data_file(kind, n).read_text(encoding="utf-8") for n in data_names(kind)}
    return [
        {"name": name, "description": tomllib.loads(text).get("description", "")}
        for name, text in texts.items()
    ]


def models(_: str) -> Rows:
    from jq.models import names

    return [{"name": name, "description": text} for name, text in names().items()]


def architectures(_: str) -> Rows:
    from jq.language.decoder.architectures import Architecture

    return [
        {
            "name": name,
            "gguf": "yes" if each.names.gguf else "no",
            "model_type": ", ".join(each.model_types),
        }
        for name, each in sorted(Architecture.registry.items())
    ]


def of_compiler(kind: str) -> Rows:
    """Rows of the compiler itself, which take importing it."""
    from jq.reporting.reference import KINDS

    return KINDS[kind]()


ROWS: dict[str, Callable[[str], Rows]] = {f.__name__: f for f in (formats, models, architectures)}
ROWS |= dict.fromkeys(("pipelines", "targets"), toml_files)  # others are in the reference
KINDS = {
    "formats": "Lists the number formats.",
    "pipelines": "Lists the pipelines.",
    "targets": "Lists the targets.",
    "models": "Lists the built-in models, to be used as jq.models:NAME.",
    "architectures": "Lists the architectures of language models, and the forms of their files.",
    "settings": "Lists the settings: type, default, allowed values, and what each does.",
    "device": "Lists what a target file can say of its device, and of single kinds of ops.",
    "recovery": "Lists the passes that keep accuracy, for the setting `recovery`.",
    "metrics": "Lists the metrics, for --metric and --budget.",
    "ops": "Lists the ops that are quantized, and those that quantized values move through.",
    "passes": "Lists all passes in their order, when each runs and why it stands there.",
}


def lister(kind: str) -> Callable[[Output], dict[str, Any]]:
    def run(out: Output) -> dict[str, Any]:
        found = ROWS.get(kind, of_compiler)(kind)
        shown = [
            {k: ", ".join(v) if isinstance(v, list) else v for k, v in r.items()} for r in found
        ]
        out.table(kind, tuple(found[0]), shown)
        return {kind: found}

    run.__doc__ = KINDS[kind]
    return run


for kind in KINDS:
    command(f"list {kind}", example=f"jaxq list {kind}")(lister(kind))


def contents(out: Output) -> dict[str, Any]:
    """Lists what is kept by its kind: how many entries, their bytes, when one was last used."""
    from jq.artifact.store import KINDS

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

    folder, every = cache_folder("store"), list(entries())
    used = sum(e.bytes for e in every)
    out.line(f"{folder}: {len(every)} entries, {size(used)} of at most {size(LIMIT)}")
    return {"folder": str(folder), "entries": len(every), "bytes": used, "limit_bytes": LIMIT}


def clear(out: Output, kind: list[str] | None = None) -> dict[str, Any]:
    """Removes what is kept: the next run computes it again.

    Args:
        kind (KIND): Only entries of this kind; may be repeated."""
    from jq.artifact.store import remove

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
