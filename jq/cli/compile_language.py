"""`jaxq compile` of a language model: its programs and packed weights, for `jaxq generate`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jq.cli.output import Output
from jq.errors import UserError
from jq.tables import size

FITTED_PIPELINES = ("int4-weight-only", "int4-dynamic")  # whose weights are those of fit_folder


def is_language_model(model: str) -> bool:
    """Whether MODEL is a GGUF file, or a folder of Hugging Face."""
    path = Path(model)
    return path.suffix.lower() == ".gguf" or (path / "config.json").is_file()


def refuse_other_options(given: Mapping[str, object]) -> None:
    """Raises `UserError` for the first option that a language model does not have."""
    for name, value in given.items():
        if value:
            raise UserError(
                f"--{name} is not for language models",
                hint="they take --pipeline, --context, --kv-cache, --text and --force",
            )


def refuse_language_options(given: Mapping[str, object]) -> None:
    """Raises `UserError` for the first option that only a language model has."""
    for name, value in given.items():
        if value:
            raise UserError(
                f"--{name} is for language models", hint="they are .gguf files or folders"
            )


def compile_language_model(
    out: Output,
    model: Path,
    output: Path,
    pipeline: str,
    context: int | None,
    cache: str | None,
    text: list[Path],
    *,
    force: bool,
) -> dict[str, Any]:
    from jq.language.fitted_folder import fit_folder
    from jq.language.model import options_for
    from jq.language.saved import save
    from jq.models.decoder import load_decoder
    from jq.system.files import temporary_folder

    if text and pipeline not in FITTED_PIPELINES:
        raise UserError(
            f"--text has no use in the pipeline {pipeline}",
            hint=f"pipelines that fit codes to a text: {', '.join(FITTED_PIPELINES)}",
        )
    with out.progress() as progress, temporary_folder() as work:
        if text:
            fit_folder(model, work / "fitted", text, progress=progress)
            model = work / "fitted"
        decoder = load_decoder(model)
        options = options_for(decoder, pipeline, cache, context)
        shapes = save(
            decoder, options, output, force=force, progress=lambda what: progress(what, None)
        )
    files = [p for p in output.iterdir() if p.is_file()]
    total = sum(p.stat().st_size for p in files)
    rows = [{"tokens": s.count, "room for": s.capacity, "file": f"{s.name}.vmfb"} for s in shapes]
    out.table("programs", ("tokens", "room for", "file"), rows)
    out.line(f"wrote {output}: {size(total)}; run it with\n  jaxq generate {output} --prompt ...")
    return {"path": str(output), "bytes": total, "programs": rows, "context": options.context}
