"""`jaxq check`: what a device cannot run of a model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output

FirstPipeline = Annotated[
    str | None,
    typer.Option(
        "--pipeline",
        "-p",
        metavar="NAME",
        help="A name, or a path to a .toml file; the first that the target accepts by default.",
    ),
]


def register(app: typer.Typer) -> None:
    command(app, "check", example="jaxq check my.py:model --target npu-int8")(check)


def check(
    out: Output,
    model: options.Model,
    target: options.Target = options.DEFAULT_TARGET,
    pipeline: FirstPipeline = None,
    settings: options.Settings = None,
    rules: options.Rules = None,
    sizes: options.Sizes = None,
    values: options.Values = None,
) -> dict[str, Any]:
    """Shows every op that the target's device cannot run, why, and what would help.

    No data is needed. Exit code 1: there are such ops.
    """
    from jq.device.checking import check as find

    source = options.sized(model, sizes, values)
    document = find(source, target, pipeline=pipeline, settings=settings, rules=rules)
    if refused := document["refused"]:
        out.table(document.rows, document.columns, refused)
        out.code = 1
    out.line(document.summary())
    return document
