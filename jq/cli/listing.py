"""`jaxq list`: everything that there is to choose from, by name."""

from typing import Any

import typer

from jq.cli.command import command
from jq.cli.output import Output

app = typer.Typer(
    name="list",
    help="Lists pipelines, targets, formats, settings and whatever else has a name.",
    invoke_without_command=True,
)


@app.callback()
def kinds(context: typer.Context) -> None:
    """Shows what can be listed where nothing is asked for."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def formats(out: Output) -> dict[str, Any]:
    """Lists the number formats."""
    from jq.formats import Format

    rows = [
        {"name": name, "description": each.description}
        for name, each in sorted(Format.registry.items())
    ]
    return show(out, "formats", rows)


def pipelines(out: Output) -> dict[str, Any]:
    """Lists the pipelines."""
    return show(out, "pipelines", toml_files("pipelines"))


def targets(out: Output) -> dict[str, Any]:
    """Lists the targets."""
    return show(out, "targets", toml_files("targets"))


def models(out: Output) -> dict[str, Any]:
    """Lists the built-in models, to be used as jq.models:NAME."""
    from jq.models import names

    rows = [{"name": name, "description": text} for name, text in names().items()]
    return show(out, "models", rows)


def architectures(out: Output) -> dict[str, Any]:
    """Lists the architectures of language models, and the forms that their files can have."""
    from jq.language.decoder.architectures import Architecture

    rows = [
        {
            "name": name,
            "gguf": "yes" if each.gguf else "no",
            "model_type": ", ".join(each.model_types),
        }
        for name, each in sorted(Architecture.registry.items())
    ]
    return show(out, "architectures", rows)


def settings(out: Output) -> dict[str, Any]:
    """Lists the settings: type, default, allowed values, and what each does."""
    return reference(out, "settings")


def device(out: Output) -> dict[str, Any]:
    """Lists what a target file can say of its device, and of single kinds of ops."""
    return reference(out, "device")


def recovery(out: Output) -> dict[str, Any]:
    """Lists the passes that keep accuracy, for the setting `recovery`."""
    return reference(out, "recovery")


def metrics(out: Output) -> dict[str, Any]:
    """Lists the metrics, for --metric and --budget."""
    return reference(out, "metrics")


def ops(out: Output) -> dict[str, Any]:
    """Lists the ops that are quantized, and those that quantized values move through."""
    return reference(out, "ops")


def passes(out: Output) -> dict[str, Any]:
    """Lists all passes in their order, when each runs and why it stands there."""
    return reference(out, "passes")


def reference(out: Output, kind: str) -> dict[str, Any]:
    from jq.reporting.reference import rows

    found = rows(kind)
    shown = [{k: ", ".join(v) if isinstance(v, list) else v for k, v in r.items()} for r in found]
    out.table(kind, tuple(found[0]), shown)
    return {kind: found}


KINDS = (
    *(formats, pipelines, targets, models, architectures, settings),
    *(device, recovery, metrics, ops, passes),
)
for function in KINDS:
    name = function.__name__
    command(f"list {name}", example=f"jaxq list {name}")(function)


def toml_files(kind: str) -> list[dict[str, Any]]:
    """Name and description of each of our data files."""
    import tomllib

    from jq.base.system.folders import data_file, data_names

    return [
        {"name": name, "description": tomllib.loads(text).get("description", "")}
        for name in data_names(kind)
        for text in [data_file(kind, name).read_text(encoding="utf-8")]
    ]


def show(out: Output, kind: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    out.table(kind, ("name", "description"), rows)
    return {kind: rows}
