"""`jaxq vectors`: golden vectors of the integer program, and what a device wrote against them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from jq.base.errors import UserError
from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output


def register(app: typer.Typer) -> None:
    command(app, "vectors", example="jaxq vectors out/ -o vectors/", writes=True)(vectors)


def vectors(
    out: Output,
    artifact: options.Artifact,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="A new folder.")
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(metavar="RUN_DIR", help="Compare what a device wrote in the same layout."),
    ] = None,
    limit: Annotated[
        float, typer.Option(min=0, metavar="MIB", help="Leave out ops with larger cases.")
    ] = 16,
) -> dict[str, Any]:
    """Writes golden vectors: inputs, parameters and outputs of every op of the integer program.

    They are .npy files with one JSON index. `--check` compares a folder of a device's outputs with
    them. The artifact must have been compiled with --emit integer. Exit code 1: an output differs.
    """
    from jq.device import golden

    if (output is None) == (check is None):
        raise UserError("vectors are written or checked", hint="give -o DIR or --check RUN_DIR")
    if check is not None:
        compared = golden.check_vectors(artifact, check)
        if different := compared["different"]:
            columns = ("name", "op", "case", "index", "expected", "got", "file")
            out.table("different", columns, different)
            out.code = 1
        out.line(f"{len(different) or 'none'} of the cases of {compared['ops']} ops differ")
        return compared
    assert output is not None
    index = golden.vectors(artifact, output, limit=limit)
    if index["left_out"]:
        out.table("left out", ("name", "op", "reason"), index["left_out"])
    out.line(f"wrote {len(index['ops'])} ops to {output}, {len(index['left_out'])} left out")
    rows = [{"name": op["name"], "op": op["op"]} for op in index["ops"]]
    return {"path": str(output), "ops": rows, "left_out": index["left_out"]}
