"""`jaxq check`, `jaxq estimate`: what a device cannot run of a model, and what it costs there."""

from pathlib import Path
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
    command(app, "estimate", example="jaxq estimate my.py:model --target ethos-u-like")(estimate)


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


def estimate(
    out: Output,
    model: options.Model,
    target: options.Target,
    pipeline: FirstPipeline = None,
    settings: options.Settings = None,
    rules: options.Rules = None,
    sizes: options.Sizes = None,
    values: options.Values = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw layers and buffers over time.")
    ] = None,
    force: options.Force = False,
) -> dict[str, Any]:
    """Estimates cycles, bytes and memory of every layer on the target's device.

    It shows what bounds each layer, the peak of on-chip memory, the latency of all and the
    utilization, by the table [hardware] of the target's file. No data is needed.
    """
    from jq.base.system.files import check_new, written_whole
    from jq.device.estimating import estimate as find
    from jq.device.picture import picture as draw

    if picture is not None:
        check_new(picture, force=force)
    source = options.sized(model, sizes, values)
    found = find(source, target, pipeline=pipeline, settings=settings, rules=rules)
    out.table(found.rows, found.columns, found[found.rows])
    out.line(found.summary())
    if picture is not None:
        with written_whole(picture) as path:
            path.write_text(draw(found), encoding="utf-8")
    return found
