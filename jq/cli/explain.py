"""`jaxq explain`: the plan, before anything is compiled."""

from __future__ import annotations

from typing import Any

import typer

from jq.base.tables import groups
from jq.cli import options
from jq.cli.command import command
from jq.cli.language import is_language_model, own
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
    allow_dynamic: options.AllowDynamic = False,
    strict_encodings: options.StrictEncodings = False,
    sizes: options.Sizes = None,
    values: options.Values = None,
) -> dict[str, Any]:
    """Shows what would be quantized and how, or why not, without compiling.

    Static ranges are calibrated first, which takes most of its time: --ranges FILE, which `jaxq
    calibrate` writes, or --allow-dynamic without data, skips that.
    One row for each op: formats, the kernel that computes it or why there is none, and the reason
    where it stays float. Then the places where integers become floats again, and why.
    """
    from jq import api
    from jq.driver.audit.op_table import COLUMNS

    chosen: tuple[Any, Any] = settings, rules
    if is_language_model(model):
        from jq.passes.pipeline.overrides import as_overrides

        base, first = own(pipeline)
        chosen = base | as_overrides(settings), [*(rules or ()), *first]
    with out.progress() as progress:
        document = api.explain(
            options.sized(model, sizes, values),
            pipeline=pipeline,
            target=target,
            calibration=calibration,
            ranges=ranges,
            settings=chosen[0],
            rules=chosen[1],
            allow_dynamic=allow_dynamic,
            strict_encodings=strict_encodings,
            progress=progress,
        )
    shown = tuple(c for c in COLUMNS if any(row[c] for row in document["ops"]))
    out.table("plan", shown, document["ops"])
    floats = [
        {"read by": op, "count": len(those), "first": those[0]["tensor"], "reason": reason}
        for (op, reason), those in groups(document["dequantized"], "op", "reason").items()
    ]
    if floats:
        out.table(
            "where codes become floats again", ("read by", "count", "first", "reason"), floats
        )
    for note in document.notes():
        out.note(note)
    return document
