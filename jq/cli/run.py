"""`jaxq run`: one call of an artifact, from file to file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from jq.base.errors import UserError
from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output


def register(app: typer.Typer) -> None:
    command(app, "run", example="jaxq run out/ --inputs in.npz --outputs out.npz", writes=True)(run)


def run(
    out: Output,
    artifact: options.Artifact,
    inputs: Annotated[Path, typer.Option(metavar="IN.npz", help="One array per input.")],
    outputs: Annotated[Path, typer.Option(metavar="OUT.npz", help="One array per output.")],
    threads: options.Threads = 1,
    verify: options.Verify = None,
    trust: options.Trust = "any",
) -> dict[str, Any]:
    """Runs an artifact on the arrays of a file."""
    from jq import api
    from jq.base import npz
    from jq.base.system.files import check_file

    check_file(outputs)
    if outputs.exists() and inputs.exists() and outputs.samefile(inputs):
        raise UserError("the outputs would take the place of the inputs", location=str(outputs))
    with out.progress() as progress:
        progress("load", None)
        compiled = api.load(artifact, threads=threads, verify=verify, trust=trust)
        arrays = npz.read_any(inputs, [size.inputs for size in compiled.sizes])
        progress("run", None)
        results = compiled.call_flat(arrays)
    named = {spec.name: array for spec, array in zip(compiled.outputs, results, strict=True)}
    npz.write(outputs, named)
    rows = [
        {"name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
        for name, array in named.items()
    ]
    out.table(str(outputs), ("name", "dtype", "shape"), rows)
    return {"path": str(outputs), "outputs": rows}
