"""`jaxq explain`: the plan, before anything is compiled."""

from __future__ import annotations

from typing import Any

import typer

from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output


def register(app: typer.Typer) -> None:
    command(app, "explain", example="jaxq explain my.py:model --pipeline int8-static")(explain)


def explain(
    out: Output,
    model: options.Model,
    pipeline: options.Pipeline = options.DEFAULT_PIPELINE,
    target: options.Target = options.DEFAULT_TARGET,
    calibration: options.Calibration = None,
    ranges: options.RangesFile = None,
    settings: options.Settings = None,
    rules: options.Rules = None,
) -> dict[str, Any]:
    """Shows one row an op: what is quantized and how, or the reason why it is not."""
    from jq import api

    with out.progress() as progress:
        plan = api.plan(
            model,
            pipeline=pipeline,
            target=target,
            calibration=calibration,
            ranges=ranges,
            settings=settings,
            rules=rules,
            progress=progress,
        )
    document: dict[str, Any] = plan.to_dict()
    columns = ("name", "op", "decision", "weights", "activations", "reason")
    out.table("plan", columns, document["ops"])
    for rule in document["unused_rules"]:
        out.note(f"rule {rule!r} matches nothing")
    return document
