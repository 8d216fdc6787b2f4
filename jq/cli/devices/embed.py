"""`jaxq embed`: the integer program as a C program for microcontrollers and other processors."""

from pathlib import Path
from typing import Annotated, Any

import typer

from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output


def register(app: typer.Typer) -> None:
    example = "jaxq embed out/ -o program/ --triple riscv64-unknown-linux-gnu"
    command(app, "embed", example=example, writes=True)(embed)


def embed(
    out: Output,
    artifact: options.Artifact,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="A new folder.")],
    triple: Annotated[
        str, typer.Option(metavar="TRIPLE", help="LLVM's name of the processor it is for.")
    ] = "x86_64-unknown-linux-gnu",
    iree_flags: options.IreeFlags = None,
) -> dict[str, Any]:
    """Writes the integer program as C and an object file, for firmware.

    A main and a CMake file are beside them, to be linked with IREE's runtime sources. The artifact
    must have been compiled with --emit integer.
    """
    from jq.device.embedding import embed as write

    found = write(artifact, output, triple=triple, iree_flags=iree_flags or ())
    out.table(str(output), ("name", "bytes"), found["files"])
    return found
