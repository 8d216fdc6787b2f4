"""`jaxq estimate`: cycles, bytes and memory by a target's own figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from jq.cli import options
from jq.cli.check import FirstPipeline
from jq.cli.command import command
from jq.cli.output import Output


def register(app: typer.Typer) -> None:
    command(app, "estimate", example="jaxq estimate my.py:model --target ethos-u-like")(estimate)


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
