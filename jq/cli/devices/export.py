"""`jaxq export`: the integer program in a form that NPU compilers and other runtimes read."""

from pathlib import Path
from typing import Annotated, Any

import typer

from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output


def register(app: typer.Typer) -> None:
    example = "jaxq export my.py:model -o model.tosa --verify"
    asked = options.asked("pipeline", "target")
    command(app, "export", example=example, writes=True, asked=asked)(export)


def export(
    out: Output,
    model: options.Model,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Its suffix says which form (.tosa, .tosa.mlir, .tflite, .onnx).",
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="tosa|tosa-mlir|tflite|onnx", help="The form, where no suffix says it."
        ),
    ] = None,
    ends: Annotated[
        str, typer.Option(metavar="int8|float", help="Inputs and outputs: codes, or floats.")
    ] = "int8",
    verify: Annotated[
        bool, typer.Option("--verify", help="Run it in the form's own reference and compare bits.")
    ] = False,
    pipeline: Annotated[
        str | None,
        typer.Option(
            "--pipeline", "-p", metavar="NAME", help="By default int8-static-integer-only."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", "-t", metavar="NAME", help="By default one that rounds as the form does."
        ),
    ] = None,
    sizes: options.Sizes = None,
    values: options.Values = None,
    force: options.Force = False,
    **asked: Any,
) -> dict[str, Any]:
    """Writes a model's integer program for NPU compilers and other runtimes.

    MODEL may be an artifact that was compiled with --emit integer. Inputs and outputs are codes,
    whose scales are printed. Exit code 1: with --verify, an output has other bits.
    """
    from jq.base.system.files import check_new
    from jq.device.exporting import export as write

    check_new(output, force=force)
    with out.progress() as progress:
        found = write(
            options.sized(model, sizes, values),
            output,
            to,
            ends,  # type: ignore[arg-type]  # checked there
            verify=verify,
            pipeline=pipeline,
            target=target,
            **asked,
            progress=progress,
        )
    for end in ("inputs", "results"):
        out.table(end, found.columns, found[end])
    out.line(found.summary())
    if found["same"] != found["outputs"]:
        out.code = 1
    return found
