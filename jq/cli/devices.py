"""Commands about devices: `jaxq check`, `estimate`, `export`, `vectors` and `embed`."""

from pathlib import Path
from typing import Any

from jq.base.errors import UserError
from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output

RULED = options.SIZED | {name: options.ASKED[name] for name in ("settings", "rules")}
RULED |= {"pipeline": options.CHOSEN["pipeline"]}


@command("check", example="jaxq check my.py:model --target npu-int8", asked=RULED)
def check(
    out: Output, model: str, target: str = options.DEFAULT_TARGET, **asked: Any
) -> dict[str, Any]:
    """Shows every op that the target's device cannot run, why, and what would help.

    No data is needed. Exit code 1: there are such ops.

    Args:
        pipeline (-p NAME): A name or a .toml file; by default the first that the target accepts."""
    from jq.device.checking import check as find

    document = find(options.sized(model, asked), target, **asked)
    if refused := document["refused"]:
        out.table(document.rows, document.columns, refused)
        out.code = 1
    out.line(document.summary())
    return document


@command("estimate", example="jaxq estimate my.py:model --target ethos-u55", asked=RULED)
def estimate(
    out: Output,
    model: str,
    target: str,
    picture: Path | None = None,
    force: bool = False,
    **asked: Any,
) -> dict[str, Any]:
    """Estimates cycles, bytes and memory of every layer on the target's device.

    It shows what bounds each layer, the peak of on-chip memory, the latency of all and the
    utilization, by the table [hardware] of the target's file. No data is needed.

    Args:
        pipeline (-p NAME): A name or a .toml file; by default the first that the target accepts.
        picture (FILE.svg): Draw layers and buffers over time."""
    from jq.base.system.files import check_new, write_text
    from jq.device.estimating import estimate as find
    from jq.device.picture import picture as draw

    if picture is not None:
        if picture.suffix != ".svg":
            raise UserError(f"{picture}: a picture is an SVG file", hint="end its name in .svg")
        check_new(picture, force=force)
    found = find(options.sized(model, asked), target, **asked)
    out.table(found.rows, found.columns, found[found.rows])
    out.line(found.summary())
    if picture is not None:
        write_text(picture, draw(found))
    return found


@command(
    "export",
    example="jaxq export my.py:model -o model.tosa --verify",
    writes=True,
    asked=options.ASKED | options.CHOSEN,
)
def export(
    out: Output,
    model: str,
    output: Path,
    to: str | None = None,
    ends: str = "int8",
    verify: bool = False,
    force: bool = False,
    **asked: Any,
) -> dict[str, Any]:
    """Writes a model's integer program for NPU compilers and other runtimes.

    MODEL may be an artifact that was compiled with --emit integer. Inputs and outputs are codes,
    whose scales are printed. Exit code 1: with --verify, an output has other bits.

    Args:
        output (-o FILE): Its suffix says which form (.tosa, .tosa.mlir, .tflite, .onnx).
        to (tosa|tosa-mlir|tflite|onnx): The form, where no suffix says it.
        ends (int8|float): Inputs and outputs: codes, or floats.
        verify: Run it in the form's own reference and compare bits.
        pipeline (-p NAME): By default int8-static-integer-only.
        target (-t NAME): By default one that rounds as the form does."""
    from jq.base.system.files import check_new
    from jq.device.exporting import export as write

    check_new(output, force=force)
    with out.progress() as progress:
        found = write(
            options.sized(model, asked),
            output,
            to,
            ends,  # type: ignore[arg-type]  # checked there
            verify=verify,
            **asked,
            progress=progress,
        )
    for end in ("inputs", "results"):
        out.table(end, found.columns, found[end])
    out.line(found.summary())
    if found["same"] != found["outputs"]:
        out.code = 1
    return found


@command("vectors", example="jaxq vectors out/ -o vectors/", writes=True, needs={"limit": "!check"})
def vectors(
    out: Output,
    artifact: Path,
    output: Path | None = None,
    check: Path | None = None,
    limit: float = 16,
) -> dict[str, Any]:
    """Writes golden vectors: inputs, parameters and outputs of every op of the integer program.

    They are .npy files with one JSON index. `--check` compares a folder of a device's outputs with
    them. The artifact must have been compiled with --emit integer. Exit code 1: an output differs.

    Args:
        output (-o DIR): A new folder.
        check (RUN_DIR): Compare what a device wrote in the same layout.
        limit (MIB 0..): Leave out ops with larger cases."""
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


@command(
    "embed", example="jaxq embed out/ -o program/ --triple riscv64-unknown-linux-gnu", writes=True
)
def embed(
    out: Output,
    artifact: Path,
    output: Path,
    triple: str = "x86_64-unknown-linux-gnu",
    iree_flags: list[str] | None = None,
) -> dict[str, Any]:
    """Writes the integer program as C and an object file, for firmware.

    A main and a CMake file are beside them, to be linked with IREE's runtime sources. The artifact
    must have been compiled with --emit integer.

    Args:
        output (-o DIR): A new folder.
        triple (TRIPLE): LLVM's name of the processor it is for."""
    from jq.device.embedding import embed as write

    found = write(artifact, output, triple=triple, iree_flags=iree_flags or ())
    out.table(str(output), ("name", "bytes"), found["files"])
    return found
