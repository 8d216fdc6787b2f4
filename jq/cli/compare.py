"""`jaxq compare`: a quantized program against the float model; `jaxq report`: a page on that."""

from pathlib import Path
from typing import Any, Literal

import typer

from jq.base.errors import LOG, UserError
from jq.cli import options
from jq.cli.command import command
from jq.cli.language import compare_language_models, is_language_model
from jq.cli.output import Output

LAYERS = (
    *("name", "op", "sqnr_db", "cosine", "max_abs_error"),
    *("isolated_sqnr_db", "isolated_cosine", "isolated_max_abs_error"),
)
# Options that an artifact has no use for, and what they are where they are not given.
OF_COMPILING = {"pipeline": "--pipeline", "target": "--target", "settings": "--set"}
OF_COMPILING |= {"rules": "--rule", "iree_flags": "--iree-flag", "allow_dynamic": "--allow-dynamic"}
DEFAULTS = (None, False, options.DEFAULT_PIPELINE, options.DEFAULT_TARGET)
ACTIVATIONS = ("name", "kind", "low", "high", "clip_low", "clip_high", "saturation")


@command(
    "compare",
    example="jaxq compare my.py:model out/ --inputs samples.npz",
    asked=options.asked("ranges", "strict_encodings") | options.MEASURED,
    language=("pipeline", "text window limit threads"),
)
def compare(
    out: Output,
    model: str,
    artifacts: list[Path] | None = None,
    inputs: Path | None = None,
    iree_flags: list[str] | None = None,
    layers: bool = False,
    bench: bool = False,
    style: Literal["table", "markdown", "csv"] = "table",
    text: list[Path] | None = None,
    window: int | None = None,
    limit: int | None = None,
    threads: int | None = None,
    **asked: Any,
) -> dict[str, Any]:
    """Compares an artifact with the float model: SQNR, cosine, largest error, metrics.

    Several artifacts become one table, the most exact first; without any the model is compiled.
    `--layers` also measures every layer. A language model is compared on text (`--text`):
    perplexity, KL divergence, and how often both find the same token most likely.

    Args:
        artifacts (<DIR>): Artifacts; several are ranked. Without any the model is compiled. Of a
            language model also other files.
        layers: Also every layer and what it reads.
        bench: Also the latency of each of the artifacts.
        style (--format table|markdown|csv): How a ranking is printed.
        text (TEXT): Of a language model: text files, UTF-8.
        window (N): Of a language model: tokens of a piece.
        limit (N 2..): Of a language model: tokens in all.
        threads (N 1..1024): Of a language model: worker threads."""
    if is_language_model(model):
        return compare_language_models(
            *(out, Path(model), artifacts or [], asked["pipeline"], text or []),
            *(window, limit, threads or 1),
        )
    workers = options.workers(asked)
    of_compiling = {**asked, "iree_flags": iree_flags}
    unused = [flag for name, flag in OF_COMPILING.items() if of_compiling[name] not in DEFAULTS]
    if artifacts and unused:
        LOG.warning("%s: no use, %s is compiled already", ", ".join(unused), artifacts[0])
    if len(artifacts or ()) > 1 or bench:
        if not workers.inside:
            raise UserError("a ranking is made in this process", hint="leave out --jobs or --dask")
        if layers:
            raise UserError("--layers is for one artifact", hint="compare each by itself")
        given = options.sized(model, asked), artifacts or [], inputs
        return ranked(out, style, *given, **options.judged(asked), latency=bench)
    if style != "table":
        raise UserError("--format is of a ranking", hint="give several artifacts, or --bench")
    from jq.api import compare as measure_error
    from jq.driver.loading import load

    with out.progress() as progress:
        comparison = measure_error(
            options.sized(model, asked),
            load(artifacts[0]) if artifacts else None,
            inputs,
            **options.judged(asked),
            **asked,
            layers=layers,
            iree_flags=iree_flags or (),
            workers=workers,
            progress=progress,
        )
    out.show(comparison.table())
    document: dict[str, Any] = comparison.to_dict()
    if layers:
        worst_first = sorted(document["layers"], key=lambda layer: layer["isolated_sqnr_db"])
        out.table("layers, worst first", LAYERS, worst_first)
        out.table("what they read", ACTIVATIONS, document["activations"])
    return document


def ranked(out: Output, style: str, *arguments: Any, **options_of: Any) -> dict[str, Any]:
    """Several artifacts in one table."""
    from jq.reporting.measuring.ranking import rank

    with out.progress() as progress:
        found = rank(*arguments, **options_of, progress=progress)
    if style == "table":
        out.table("artifacts, most exact first", found.columns(), found.rows)
    else:
        text = found.markdown() if style == "markdown" else found.csv()
        out.line(text.rstrip(), whole=True)
    return found.to_dict()


@command(
    "report",
    example="jaxq report my.py:model out/ -o report.html",
    writes=True,
    asked=options.JUDGED | options.SIZED,
)
def report(
    out: Output,
    context: typer.Context,
    model: str,
    artifact: Path,
    output: Path,
    inputs: Path | None = None,
    calibration: Path | None = None,
    samples: int = 16,
    seconds: float = 2.0,
    model_explorer: Path | None = None,
    force: bool = False,
    **asked: Any,
) -> dict[str, Any]:
    """Writes one HTML page on the error of an artifact.

    It needs no network, and shows a verdict, rules to try, the model's graph coloured by error, the
    error of every layer, histograms, sizes, the latency beside the float model's, and the plan with
    its reasons.

    Args:
        output (-o FILE.html): The page.
        samples (N 1..): Samples for layers and histograms.
        seconds (0.01..1e6): Measuring time of each latency.
        model_explorer (FOLDER): Also the graph and its errors for Model Explorer."""
    from jq.base.system.files import check_folder, check_new
    from jq.reporting.report import report as write_page

    check_new(output, force=force)
    if model_explorer:
        check_folder(model_explorer, force=force)
    with out.progress() as progress:
        write_page(
            options.sized(model, asked),
            artifact,
            output,
            data=inputs,
            **options.judged(asked),
            calibration=calibration,
            samples=samples,
            seconds=seconds,
            model_explorer=model_explorer,
            command=context.obj,
            progress=progress,
        )
    out.line(f"wrote {output}")
    if model_explorer:
        out.line(f"wrote {model_explorer}: open graph.json in Model Explorer, add the others to it")
    return {"path": str(output)}
