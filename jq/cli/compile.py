"""`jaxq compile`: the whole way from a model to an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output, size


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
    from jq.cli.models import open_model, samples

    api.check_output(output, force=force)
    with out.progress() as progress:
        opened = open_model(model, progress)
        compiled = api.compile(
            opened,
            pipeline=pipeline,
            target=target,
            calibration=samples(opened, calibration),
            ranges=ranges,
            settings=settings,
            rules=rules,
            emit=emit,
            progress=progress,
        )
        progress("save", None)
        compiled.save(output, force=force)
    audit = compiled.audit().to_dict()
    show(out, compiled.report, audit)
    out.line(f"wrote {output}")
    return {"path": str(output), **compiled.report, "audit": audit}


def show(out: Output, report: dict[str, Any], audit: dict[str, Any]) -> None:
    """Counts, sizes and times as tables; what stayed float with its reason."""
    if out.quiet:
        return
    if audit["float_ops"]:
        out.table("stays float", ("name", "op", "reason"), audit["float_ops"])
    times = [{"stage": name, "seconds": round(s, 2)} for name, s in report["seconds"].items()]
    out.table("time", ("stage", "seconds"), times)
    stored = audit["module_bytes"] + audit["parameter_bytes"]
    out.line(f"stored {size(stored)}, float parameters {size(audit['float_parameter_bytes'])}")
