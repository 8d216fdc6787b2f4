"""Every pipeline on the networks, in turns: its time beside `float` and `int8-static`.

    scripts/benchmark.py pipelines [MODEL ...] [--pipelines mxfp8] [--seconds 2] [-o DIR]

Artifacts are kept in DIR and are not made again. Each runs on one thread, in a process of its own;
all are alive at once and take turns. The table has the best and the median of the calls, and of
both the ratios to `float` and to `int8-static`. A pipeline that refuses a network says why.
"""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from jq import api
from jq.base.data import data_names
from jq.base.errors import JqError
from jq.base.system.processor import this_processor
from jq.driver.loading import load
from jq.frontends.source import AnyModel
from jq.frontends.tracing.source import load_model
from jq.models import build
from jq.reporting.benchmark import Job, Latency, bench, random_inputs

MODELS = ["minilm-full", "resnet", "mobilenet", "digits_cnn", "mlp"]
PEERS = ("float", "int8-static")


def _model(name: str) -> AnyModel:
    if name.endswith("-full"):  # sentences without padding
        return build(name.removesuffix("-full"), full=True)
    return load_model(name if ":" in name else f"jq.models:{name}")


def _job(artifact: Path, model: AnyModel) -> Job:
    compiled = load(artifact)
    batches = model.evaluation() if callable(model.evaluation) else model.evaluation
    inputs = next(iter(batches)) if batches else random_inputs(compiled.inputs)
    parameters = compiled.parameters if isinstance(compiled.parameters, Path) else None
    assert isinstance(compiled.vmfb, Path)
    return Job(compiled.vmfb, parameters, inputs)


def measure(name: str, pipelines: list[str], seconds: float, folder: Path) -> dict[str, Any]:
    """Latencies of a network by pipeline, and the reasons of those that refuse it."""
    model = _model(name)
    jobs, refused = {}, {}
    for pipeline in pipelines:
        kept = folder / name.replace(":", "-") / pipeline.replace(" ", "-")
        try:
            if not kept.exists():
                kept.parent.mkdir(parents=True, exist_ok=True)
                plain, *settings = pipeline.split()
                api.compile(model, plain, settings=settings).save(kept)
            jobs[pipeline] = _job(kept, model)
        except JqError as error:
            refused[pipeline] = str(error).splitlines()[0]
    found = dict(zip(jobs, bench(list(jobs.values()), seconds=seconds), strict=True))
    return {"model": name, "found": found, "refused": refused}


def table(row: dict[str, Any]) -> list[str]:
    """The fastest first."""
    found: dict[str, Latency] = row["found"]
    titles = [f"to {peer} ({of})" for peer in PEERS if peer in found for of in ("best", "median")]
    lines = [
        f"### {row['model']}",
        "",
        f"| pipeline | best ms | median ms | {' | '.join(titles)} |",
    ]
    lines.append("|---|" + "---:|" * (2 + len(titles)))
    for name, one in sorted(found.items(), key=lambda pair: pair[1].min_ms):
        cells = [f"{one.min_ms:.3f}", f"{one.median_ms:.3f}"]
        for other in (found[peer] for peer in PEERS if peer in found):
            cells += [f"{one.min_ms / other.min_ms:.2f}", f"{one.median_ms / other.median_ms:.2f}"]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return [*lines, "", *(f"- `{name}`: {why}" for name, why in row["refused"].items())]


def main(
    models: Annotated[list[str], typer.Argument(help="Built-in, or as the commands take them.")] = (
        MODELS  # type: ignore[assignment]
    ),
    pipelines: Annotated[str, typer.Option(help="By comma, with settings: `float a.b=c`.")] = "",
    seconds: Annotated[float, typer.Option(help="Measuring time of each program.")] = 2.0,
    output: Annotated[Path, typer.Option("-o", help="Directory.")] = Path("build/pipelines"),
) -> None:
    asked = [p.strip() for p in pipelines.split(",")] if pipelines else data_names("pipelines")
    names = [*PEERS, *(p for p in asked if p not in PEERS)]
    print(f"{this_processor().model}, {os.cpu_count()} cores, one thread\n", flush=True)
    document = {}
    for name in models:
        row = measure(name, names, seconds, output)
        print("\n".join(table(row)), flush=True)
        times = {p: one.to_dict() for p, one in row["found"].items()}
        document[name] = {"times": times, "refused": row["refused"]}
        (output / "pipelines.json").write_text(json.dumps(document, indent=1) + "\n")
