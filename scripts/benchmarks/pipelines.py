"""Every pipeline on the networks, in turns: its time beside `float` and `int8-static`.

    scripts/benchmark.py pipelines [MODEL ...] [--pipelines mxfp8] [--seconds 2] [-o DIR]

Artifacts are kept in DIR and are not made again. All are loaded in one process and take turns, one
call each. A time is the processor's, of all threads, which other processes on the machine hardly
change; the table has the best and the median of the calls, the best by the clock, and the ratios
to `float` and to `int8-static`. A pipeline that refuses a network says why. The last table has the
ratios to `float` of the medians, of all networks.
"""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from jq import api
from jq.base.errors import JqError
from jq.base.system.folders import data_names
from jq.base.system.processor import this_processor
from jq.driver.compiled import CompiledModel
from jq.driver.loading import load
from jq.frontends.source import AnyModel
from jq.frontends.tracing.source import load_model
from jq.models import build
from jq.reporting.benchmark.session import random_inputs

MODELS = ["minilm-full", "resnet", "mobilenet", "digits_cnn", "mlp"]
PEERS = ("float", "int8-static")
LEAST = 10  # calls
Times = dict[str, list[float]]  # milliseconds of each call


def _model(name: str) -> AnyModel:
    if name.endswith("-full"):  # sentences without padding
        return build(name.removesuffix("-full"), full=True)
    return load_model(name if ":" in name else f"jq.models:{name}")


def _inputs(model: AnyModel, compiled: CompiledModel) -> Sequence[Any]:
    batches = getattr(model, "evaluation", None)
    batches = batches() if callable(batches) else batches
    return next(iter(batches)) if batches else random_inputs(compiled.inputs)


def compiled(
    name: str, pipelines: list[str], more: list[str], folder: Path
) -> tuple[dict[str, CompiledModel], dict[str, str], AnyModel]:
    """The artifacts of a network by pipeline, and the reasons of pipelines that refuse it."""
    model, refused = _model(name), {}
    found: dict[str, CompiledModel] = {}
    for pipeline in pipelines:
        kept = folder / name.replace(":", "-") / "-".join([pipeline, *more]).replace("/", "-")
        try:
            if not kept.exists():
                kept.parent.mkdir(parents=True, exist_ok=True)
                api.compile(model, pipeline, settings=more).save(kept)
            found[pipeline] = load(kept)
        except JqError as error:
            refused[pipeline] = str(error).splitlines()[0]
    return found, refused, model


def measure(found: dict[str, CompiledModel], model: AnyModel, seconds: float) -> dict[str, Times]:
    """Processor and clock time of every call, one of each program in turn."""
    inputs = {name: _inputs(model, program) for name, program in found.items()}
    times: dict[str, Times] = {name: {"processor": [], "clock": []} for name in found}
    for name, program in found.items():
        program(*inputs[name])
    start, calls = time.perf_counter(), 0
    while calls < LEAST or time.perf_counter() - start < seconds * len(found):
        for name, program in found.items():
            clock, processor = time.perf_counter(), time.process_time()
            program(*inputs[name])
            times[name]["processor"].append(1e3 * (time.process_time() - processor))
            times[name]["clock"].append(1e3 * (time.perf_counter() - clock))
        calls += 1
    return times


def table(name: str, times: dict[str, Times], refused: dict[str, str]) -> list[str]:
    """The fastest first."""
    peers = [peer for peer in PEERS if peer in times]
    titles = [f"to {peer} ({of})" for peer in peers for of in ("best", "median")]
    columns = ["pipeline", "best ms", "median ms", "best by the clock", *titles]
    lines = [
        f"### {name}",
        "",
        f"| {' | '.join(columns)} |",
        "|---|" + "---:|" * (len(columns) - 1),
    ]
    for pipeline, one in sorted(times.items(), key=lambda pair: min(pair[1]["processor"])):
        mine = one["processor"]
        cells = [f"{v:.3f}" for v in (min(mine), median(mine), min(one["clock"]))]
        for other in (times[peer]["processor"] for peer in peers):
            cells += [f"{of(mine) / of(other):.2f}" for of in (min, median)]
        lines.append(f"| `{pipeline}` | {' | '.join(cells)} |")
    return [*lines, "", *(f"- `{pipeline}`: {why}" for pipeline, why in refused.items())]


def summary(document: dict[str, Any]) -> list[str]:
    """The median processor time of every pipeline by that of `float`, a column a network: the
    best of calls of some microseconds is what the system's clock of a process makes of it."""
    found = {name: one["milliseconds"] for name, one in document.items()}
    times = {n: {p: median(t["processor"]) for p, t in one.items()} for n, one in found.items()}
    ratios = {name: {p: t / one["float"] for p, t in one.items()} for name, one in times.items()}
    pipelines = dict.fromkeys(p for one in ratios.values() for p in one)

    def mean(pipeline: str) -> float:
        return sum(one.get(pipeline, 1.0) for one in ratios.values())

    rows = [
        [f"`{p}`", *(f"{one[p]:.2f}" if p in one else "refused" for one in ratios.values())]
        for p in sorted(pipelines, key=mean)
    ]
    rows.append(["`float`, ms", *(f"{one['float']:.2f}" for one in times.values())])
    head = f"| pipeline | {' | '.join(ratios)} |"
    return [head, "|---|" + "---:|" * len(ratios), *(f"| {' | '.join(row)} |" for row in rows)]


def main(
    models: Annotated[
        list[str] | None, typer.Argument(help="Built-in, or as the commands take them.")
    ] = None,
    pipelines: Annotated[str, typer.Option(help="By comma; all of them without it.")] = "",
    settings: Annotated[str, typer.Option(help="Of all, by comma: `recovery=false`.")] = "",
    seconds: Annotated[float, typer.Option(help="Measuring time of each program.")] = 2.0,
    output: Annotated[Path, typer.Option("-o", help="Directory.")] = Path("build/pipelines"),
) -> None:
    asked = pipelines.split(",") if pipelines else data_names("pipelines")
    names = [*PEERS, *(p for p in asked if p not in PEERS)]
    more = [s for s in settings.split(",") if s]
    print(f"{this_processor().model}, {os.cpu_count()} cores\n", flush=True)
    document = {}
    for name in models or MODELS:
        found, refused, model = compiled(name, names, more, output)
        times = measure(found, model, seconds)
        print("\n".join(table(name, times, refused)), flush=True)
        document[name] = {"milliseconds": times, "refused": refused}
        (output / "pipelines.json").write_text(json.dumps(document) + "\n")
    print("\n".join(summary(document)), flush=True)
