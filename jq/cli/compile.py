"""`jaxq compile`: the whole way from a model to an artifact."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group

from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output


def register(app: typer.Typer) -> None:
    command(app, "compile", example="jaxq compile my.py:model --pipeline int8-dynamic -o out/")(
        compile_model
    )


def compile_model(
    out: Output,
    model: options.Model,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="The artifact.")],
    pipeline: options.Pipeline = options.DEFAULT_PIPELINE,
    target: options.Target = options.DEFAULT_TARGET,
    calibration: options.Calibration = None,
    ranges: options.RangesFile = None,
    settings: options.Settings = None,
    rules: options.Rules = None,
    emit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LEVEL",
            help="Also write the module at this level: float, qdq, integer, target.",
        ),
    ] = None,
    force: options.Force = False,
) -> dict[str, Any]:
    """Compiles a model into a quantized program, and says what was quantized and what was not."""
    from jq import api

    api.check_output(output, force=force)
    with out.progress() as progress:
        compiled = api.compile(
            model,
            pipeline=pipeline,
            target=target,
            calibration=calibration,
            ranges=ranges,
            settings=settings,
            rules=rules,
            emit=emit,
            progress=progress,
        )
        progress("save", None)
        compiled.save(output, force=force)
    audit = compiled.audit()
    counts = Counter(op["decision"] for op in compiled.manifest.ops)
    if not out.quiet:
        out.show(Group(*audit.tables()))
        times = [{"stage": name, "seconds": s} for name, s in compiled.seconds.items()]
        out.table("time", ("stage", "seconds"), times)
    out.line(f"wrote {output}: {audit.summary()}")
    return {
        "path": str(output),
        "counts": counts,
        "seconds": compiled.seconds,
        "unused_rules": compiled.manifest.unused_rules,
        "audit": audit.to_dict(),
    }
