"""`jaxq compare`: a quantized program against the float model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output

LAYERS = (
    *("name", "op", "sqnr_db", "cosine", "max_abs_error"),
    *("isolated_sqnr_db", "isolated_cosine", "isolated_max_abs_error"),
)
ACTIVATIONS = ("name", "kind", "low", "high", "clip_low", "clip_high", "saturation")


def register(app: typer.Typer) -> None:
    command(app, "compare", example="jaxq compare my.py:model out/ --inputs samples.npz")(compare)


def compare(
    out: Output,
    model: options.Model,
    artifact: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]", show_default=False, help="An artifact; else the model is compiled."
        ),
    ] = None,
    pipeline: options.Pipeline = options.DEFAULT_PIPELINE,
    target: options.Target = options.DEFAULT_TARGET,
    inputs: options.Samples = None,
    metric: options.Metrics = None,
    labels: options.Labels = None,
    iree_flags: options.IreeFlags = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Also every layer and what it reads.")
    ] = False,
    calibration: options.Calibration = None,
    settings: options.Settings = None,
    rules: options.Rules = None,
    sizes: options.Sizes = None,
) -> dict[str, Any]:
    """Compares outputs (and layers) with the float model: SQNR, cosine, largest error, metrics."""
    from jq.compiled import load
    from jq.measure import compare as measure_error

    with out.progress() as progress:
        comparison = measure_error(
            options.sized(model, sizes),
            None if artifact is None else load(artifact),
            inputs,
            pipeline=pipeline,
            target=target,
            calibration=calibration,
            settings=settings,
            rules=rules,
            metric=metric or None,
            labels=options.read_labels(labels),
            layers=layers,
            iree_flags=iree_flags or (),
            progress=progress,
        )
    out.show(comparison.table())
    document: dict[str, Any] = comparison.to_dict()
    if layers:
        worst_first = sorted(document["layers"], key=lambda layer: layer["sqnr_db"])
        out.table("layers, worst first", LAYERS, worst_first)
        out.table("what they read", ACTIVATIONS, document["activations"])
    return document
