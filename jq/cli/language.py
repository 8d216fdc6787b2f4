"""Commands on a language model: `jaxq compile` writes programs and packed weights for
`jaxq generate`; `jaxq compare` shows perplexity, KL divergence and changed tokens on text;
`jaxq generate --chat` converses."""

import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jq.base.errors import UserError
from jq.base.tables import printable, size
from jq.cli.output import Output

WINDOW = 512  # tokens of a piece of text
COLUMNS = ("perplexity", "perplexity_float", "kl", "kl_largest", "top1_agreement", "changed")
FIELDS = {"perplexity_float": "other_perplexity", "top1_agreement": "agreement"}  # other names
PROMPT = "> "  # of a conversation
FITTED_PIPELINES = ("int4-weight-only", "int4-dynamic")  # whose weights are those of fit_folder


def is_language_model(model: str) -> bool:
    """True if MODEL is a GGUF file, or a folder of Hugging Face."""
    from jq.frontends.gguf import is_gguf

    path = Path(model)
    return is_gguf(path) or (path / "config.json").is_file()


def one_token(model: Path) -> Any:
    """The step that generates, as a model like any other: one token, and room for those before."""
    from jq.language.decoder import load_decoder
    from jq.language.decoder.program import decoder_model

    decoder = load_decoder(model)
    return decoder_model(decoder, 1, min(WINDOW, decoder.config.context))


def own(pipeline: str) -> tuple[dict[str, Any], list[Any]]:
    """The settings and rules that `jaxq generate` compiles with."""
    from jq.language.build import own_settings
    from jq.language.store import Options

    return own_settings(Options(pipeline))


def compile_language_model(
    out: Output,
    model: Path,
    output: Path,
    pipeline: str,
    context: int | None,
    cache: str | None,
    text: list[Path],
    sign: Path | None,
    *,
    force: bool,
) -> dict[str, Any]:
    from jq.base.system.files import check_folder
    from jq.base.system.temporary import temporary_folder
    from jq.language.decoder import load_decoder
    from jq.language.fitted_folder import fit_folder
    from jq.language.saved import save
    from jq.language.store import options_for

    check_folder(output, force=force)
    if text and pipeline not in FITTED_PIPELINES:
        hint = f"pipelines that fit codes to a text: {', '.join(FITTED_PIPELINES)}"
        raise UserError(f"--text has no use in the pipeline {pipeline}", hint=hint)
    if text and not model.is_dir():
        hint = f"`jaxq quantize {model} OUT.gguf --importance TEXT` fits a file to a text"
        raise UserError("--text is for folders", location=str(model), hint=hint)
    with out.progress() as progress, temporary_folder() as work:
        decoder = load_decoder(model)
        options = options_for(decoder, pipeline, cache, context)
        if text:
            fit_folder(model, work / "fitted", text, progress=progress)
            decoder = load_decoder(work / "fitted")
        shapes = save(decoder, options, output, force=force, key=sign, progress=progress)
    total = sum(p.stat().st_size for p in output.iterdir() if p.is_file())
    rows = [{"tokens": s.count, "room for": s.capacity, "file": f"{s.name}.vmfb"} for s in shapes]
    out.table("programs", ("tokens", "room for", "file"), rows)
    out.line(f"wrote {output}: {size(total)}; run it with\n  jaxq generate {output} --prompt ...")
    return {"path": str(output), "bytes": total, "programs": rows, "context": options.context}


def compare_language_models(
    out: Output,
    model: Path,
    others: Sequence[Path],
    pipeline: str,
    text: Sequence[Path],
    window: int | None,
    limit: int | None,
    threads: int = 1,
) -> dict[str, Any]:
    """Artifacts, or other files of the same model, against the model with float activations;
    without any, the model in a pipeline."""
    from jq.language.decoder import load_decoder
    from jq.language.model import LanguageModel
    from jq.language.perplexity import measure
    from jq.language.saved import is_saved

    if not text:
        raise UserError("a language model is compared on text", hint="give files with --text")
    rows: list[dict[str, Any]] = []
    with out.progress() as progress:
        context = window or min(WINDOW, load_decoder(model).config.context)
        load = partial(LanguageModel, threads=threads, progress=progress)
        exact = load(model, pipeline="float", context=context)
        for path in others or [model]:
            progress(str(path), None)
            own: Any = {} if is_saved(path) else {"pipeline": pipeline, "context": context}
            other = load(path, **own)
            found = measure(other, text, exact, limit, progress, window)
            own = {"pipeline": other.options.pipeline, "tokens": found.tokens}
            row = {"artifact": str(path)} | own
            rows.append(row | {name: getattr(found, FIELDS.get(name, name)) for name in COLUMNS})
    rows.sort(key=lambda row: row["kl"])
    out.table("against float activations", ("artifact", "pipeline", "tokens", *COLUMNS), rows)
    if len(rows) > 1:
        return {"artifacts": rows}
    (row,) = rows
    both = {"float": row.pop("perplexity_float"), "quantized": row.pop("perplexity")}
    return {**row, "metrics": {"perplexity": both}}


def stream(out: Output, pieces: Iterable[str]) -> None:
    """Prints a text as it comes; a terminal gets nothing that it would obey."""
    shown = printable if out.stdout.isatty() else str
    for piece in pieces:
        print(shown(piece), end="", flush=True, file=out.stdout)
    print(file=out.stdout)


def converse(out: Output, model: Any, system: str | None, options: dict[str, Any]) -> int:
    """Asks and answers until there is no more input; the number of answers. Ctrl-C ends an
    answer, and where there is none, everything.

    Args:
        model: a `LanguageModel`.
        options: those of its `generate`."""
    talk, turns = model.conversation(system), 0
    while (question := _question(out)) is not None:
        if not question:
            continue
        try:
            stream(out, talk.ask(question, **options).pieces())
        except KeyboardInterrupt:
            print(file=out.stdout)
        except UserError as error:  # such as a context that is full
            if not turns:
                raise
            out.note(f"the conversation ends here: {error}")
            return turns
        turns += 1
    return turns


def _question(out: Output) -> str | None:
    """The next line of standard input; None after the last."""
    if sys.stdin.isatty() and not out.quiet:
        print(PROMPT, end="", flush=True, file=sys.stderr)
    line = text_of(sys.stdin.buffer.readline())
    return line.strip() if line else None


def text_of(content: bytes) -> str:
    """Bytes that are no UTF-8 as Python has them in arguments, for one message about both."""
    return content.decode("utf-8", "surrogateescape")
