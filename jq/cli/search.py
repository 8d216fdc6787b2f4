"""`jaxq search`: a format for every layer, within a budget."""

from pathlib import Path
from typing import Any

from jq.cli import options
from jq.cli.command import command
from jq.cli.output import Output


@command(
    "search",
    example='jaxq search my.py:model --budget "cosine>=0.995" -o mixed.toml',
    asked=options.asked("ranges", "allow_dynamic", "strict_encodings") | options.MEASURED,
)
def search(
    out: Output,
    model: str,
    budget: list[str],
    output: Path | None = None,
    candidates: list[str] | None = None,
    inputs: Path | None = None,
    iree_flags: list[str] | None = None,
    cost: str | None = None,
    samples: int = 16,
    state: Path | None = None,
    force: bool = False,
    **asked: Any,
) -> dict[str, Any]:
    """Chooses a format for every layer, within a budget of accuracy, size or latency.

    Of a budget for accuracy it finds the cheapest formats, of one for cost the most exact. The
    result is compiled and measured, so that it is known to hold the budget. The same command goes
    on where an interrupted search was.

    Args:
        budget (CONDITION): `sqnr_db>=35`, `cosine>=0.995`, `accuracy_drop<=0.5` (points),
            `file.py:function>=0.9`, `size<=0.3`, `work<=0.1`, `latency<=5ms`. May be given several
            times.
        output (-o FILE.toml): The pipeline file.
        candidates (NAME,...): What an op may be: `float`, a pipeline's name, FORMAT or
            FORMAT/BLOCK, or 'NAME: KEY=VALUE, ...'. May be given several times.
        cost (WHAT): What to save: size, work, latency, or a sum of these.
        samples (N 1..): Samples that single layers are measured on.
        state (FILE): Where measurements are kept."""
    from jq.base.system.files import check_new
    from jq.mixed_precision.problem import check_pipeline_name
    from jq.mixed_precision.run import search as search_formats

    if output is not None:
        check_new(output, force=force)
        check_pipeline_name(output)
    try:
        with out.progress() as progress:
            found = search_formats(
                options.sized(model, asked),
                budget,
                candidates=split(candidates or ()),
                data=inputs,
                workers=options.workers(asked),
                **options.judged(asked),
                **asked,
                cost=cost,
                samples=samples,
                state=state,
                iree_flags=iree_flags or (),
                progress=progress,
            )
    except KeyboardInterrupt:
        out.note("what was measured is kept: the same command goes on from there")
        raise
    out.show(found.table())
    out.show(found.comparison.table())
    document: dict[str, Any] = {"path": None, **found.to_dict()}
    if output is not None:
        document["path"] = str(found.save(output))
        reached = ", ".join(f"{name} {value:.6g}" for name, value in found.reached.items())
        out.line(f"wrote {output}: {reached}")
    return document


def split(texts: list[str] | tuple[str, ...]) -> list[str]:
    """Names separated by commas; a candidate with settings stands alone."""
    return [name.strip() for text in texts for name in ([text] if ":" in text else text.split(","))]
