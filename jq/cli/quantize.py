"""`jaxq quantize`: a language model in fewer bits, as a file or a folder."""

from pathlib import Path
from typing import Any

from jq.base.errors import UserError
from jq.cli.command import command
from jq.cli.output import Output

GROUP = 32


@command(
    "quantize", example="jaxq quantize in.gguf out.gguf --type q4_k", needs={"pieces": "importance"}
)
def quantize(
    out: Output,
    source: Path,
    target: Path,
    kind: str,
    importance: list[Path] | None = None,
    pieces: int = 64,
    group: int = GROUP,
    minutes: float = 0.0,
    force: bool = False,
) -> dict[str, Any]:
    """Quantizes a language model: a GGUF file to another, or a folder of Hugging Face.

    Matrices of a GGUF file become those of a format of ggml, matrices of a folder become integers.
    A run that was ended goes on where it was.

    Args:
        source (<IN.gguf|FOLDER>): The model.
        target (<OUT.gguf|FOLDER>): Where it goes.
        kind (--type TYPE): q4_k, q8_0, ...; of a folder int4, int8.
        importance (TEXT): Text that codes and scales are fitted to.
        pieces (N 1..): Of 256 tokens, of the text.
        group (N 0..): Columns that share a scale, of a folder.
        minutes (N 0..): Quantize a GGUF file on more and more of the text, for about so long."""
    from jq.base.system.files import check_input, check_new
    from jq.language.quantize import quantize as write

    if source.is_dir() and (force or minutes):
        raise UserError("--force and --minutes are of GGUF files", location=str(source))
    if source.is_dir():
        return of_folder(out, source, target, kind, group, importance, pieces)
    if group != GROUP:
        raise UserError("--group is of folders", location=str(source))
    check_input(source)
    check_new(target, force=force)
    with out.progress() as progress:
        rows = write(source, target, kind, importance or (), pieces, progress, minutes)
    out.table(str(target), ("name", "before", "after", "bytes"), rows)
    return {"path": str(target), "tensors": rows}


def of_folder(
    out: Output, source: Path, target: Path, kind: str, group: int, texts: Any, pieces: int
) -> dict[str, Any]:
    """A folder: layer by layer where it is fitted to texts, else shard by shard."""
    from jq.language.checkpoint import quantize_folder
    from jq.language.fitted_folder import fit_folder

    with out.progress() as progress:
        if texts:
            found: Any = fit_folder(source, target, texts, pieces, kind, group, progress)
            more = "fitted to the text"
        else:
            found = quantize_folder(source, target, kind, group, progress)
            more = f"{found.kept} tensors as they were, {found.bytes / 1e9:.2f} of"
            more += f" {found.source_bytes / 1e9:.2f} GB"
            more += f"; {found.resumed} shards were there already" if found.resumed else ""
    out.line(f"wrote {target}: {found.quantized} matrices as {kind}, {more}")
    return {"path": str(target), **vars(found)}
