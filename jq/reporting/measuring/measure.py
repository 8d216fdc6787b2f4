"""Quality of a compiled model: its error against the float model, and its latency."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import tee
from pathlib import Path
from typing import Any

import numpy as np

from jq.artifact.jobs import HERE, Result, Work, Workers, in_order, run_jobs
from jq.artifact.keys import program_digest
from jq.artifact.store import Cache
from jq.base import npz
from jq.base.errors import UserError, check_type
from jq.base.progress import Progress, Stages, heard
from jq.base.system.temporary import temporary_folder
from jq.driver.comparison.layers import compare_layers
from jq.driver.comparison.result import NOTHING_INSIDE, Comparison, Inside
from jq.driver.compiled import CompiledModel
from jq.driver.job import Job, prepare_job
from jq.driver.loading import folder_of, load
from jq.driver.request import Request
from jq.driver.stages import plan_job, rewrite_job
from jq.frontends.source import Data, Source
from jq.ir import Program
from jq.ir.oracle.xla import XlaExecutable
from jq.ir.types import signature
from jq.passes.pipeline import PipelineFile, changed_settings, load_pipeline
from jq.planning.decisions import QuantPlan
from jq.reporting.benchmark.session import Job as BenchJob
from jq.reporting.benchmark.session import bench as measure_jobs
from jq.reporting.benchmark.session import random_inputs
from jq.reporting.measuring.evaluation import Evaluation
from jq.target import FLOAT, Rule, Target


def compare_compiled(
    given: Evaluation,
    compiled: CompiledModel,
    progress: Progress | None = None,
    inside: Inside = NOTHING_INSIDE,
    workers: Workers = HERE,
) -> Comparison:
    """Error of a compiled model on what its model is judged on."""
    check_same_model(given.source, compiled)
    first, second = tee(outputs_of_both(given, compiled, workers, heard(progress)))
    return given.compare((r for r, _ in first), (q for _, q in second), inside)


def check_same_model(source: Source, compiled: CompiledModel, where: str | None = None) -> None:
    """Refuses what takes or gives other tensors than the float model; `where` is the artifact."""
    model, made = source.program, compiled
    if (made.inputs, made.outputs) == (model.inputs, model.outputs):
        return
    if made.manifest.settings.get("kv_cache", {}).get("format", FLOAT) != FLOAT:
        what = "the compiled model takes other inputs than the model: its KV cache is quantized"
        raise UserError(what, location=where, hint="compare it compiled with kv_cache.format=float")
    theirs, ours = (signature(m.inputs, m.outputs) for m in (made, model))
    reason = f"it was compiled from another model: {theirs}; the model is {ours}"
    raise UserError(reason, location=where)


def layers_of(
    given: Evaluation, compiled: CompiledModel, calibration: Data, progress: Progress | None
) -> Inside:
    """Error of each layer on what the model is judged on."""
    levels, found = levels_of(given.source, compiled, calibration)
    return compare_layers(levels["float"], levels["qdq"], found, given.calls, heard(progress))


def levels_of(
    source: Source, compiled: CompiledModel, calibration: Data
) -> tuple[Mapping[str, Program], QuantPlan]:
    """A compiled model's levels and plan; a loaded artifact's are made again, up to `qdq`."""
    if compiled.levels and compiled.plan is not None:
        return compiled.levels, compiled.plan
    job, found = plan_again(source, compiled, calibration)
    return rewrite_job(job, found, until="qdq"), found


def plan_again(
    source: Source, compiled: CompiledModel, calibration: Data = None
) -> tuple[Job, QuantPlan]:
    """Plans a loaded artifact again: its settings, on the model's calibration data."""
    manifest, own = compiled.manifest, compiled.manifest.own_files
    pipeline = PipelineFile(**own["pipeline"]) if "pipeline" in own else manifest.pipeline
    target = Target(**own["target"]) if "target" in own else manifest.target
    given = changed_settings(manifest.settings, load_pipeline(pipeline).settings)
    rules = [Rule(**rule) for rule in manifest.rules]
    job = prepare_job(source, Request(pipeline, target, given, rules, calibration))
    return job, plan_job(job, Stages())


def bench(
    artifact: CompiledModel | str | Path,
    *,
    against: CompiledModel | str | Path | None = None,
    inputs: str | Path | None = None,
    threads: int | None = None,
    seconds: float = 5.0,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measures the latency of an artifact in a process of its own, as `jaxq bench` does.

    Args:
        artifact: the folder that `CompiledModel.save` or `jaxq compile` wrote, or what is loaded.
        against: a second artifact, run in turns with the first; `ratio` is its median over ours.
        inputs: a `.npz` file; by default random values of the right types.
        threads: how many threads compute, 1 by default.
        seconds: time to measure, in all.
        progress: see `jq.compile`.

    Returns:
        A dictionary with `median_ms`, `p90_ms` and `min_ms` of one call, `load_ms`, `runs`,
        `calls_per_second`, `threads` and `peak_rss_bytes`; with `against` also `against` and
        `ratio`.

    Raises:
        UserError: there is no artifact, or the inputs do not fit it.

    Example:
        ```python
        print(jq.bench("out/", seconds=0.2)["median_ms"])
        ```"""
    check_type("inputs", inputs, str, Path, type(None))
    check_type("threads", threads, int, type(None))
    check_type("seconds", seconds, int, float)
    paths = [artifact] if against is None else [artifact, against]
    jobs = [_bench_job(folder_of(path), inputs) for path in paths]
    figures = measure_jobs(
        jobs, threads=threads or 1, seconds=seconds / len(jobs), progress=heard(progress)
    )
    document = figures[0].to_dict()
    if against is not None:
        document["against"] = figures[1].to_dict()
        document["ratio"] = figures[1].median_ms / figures[0].median_ms
    return document


def _bench_job(path: Path, inputs: str | Path | None) -> BenchJob:
    compiled = load(path)
    compiled.check_processor()
    if inputs:
        given = npz.read_any(Path(inputs), [size.inputs for size in compiled.sizes])
        compiled = compiled.at_shapes([x.shape for x in given])
    else:
        given = random_inputs(compiled.inputs)
    assert isinstance(compiled.vmfb, Path)
    parameters = compiled.parameters if isinstance(compiled.parameters, Path) else None
    return BenchJob(compiled.vmfb, parameters, given)


# The float model and a compiled one, call by call, as jobs.
Pair = tuple[list[np.ndarray], list[np.ndarray]]


@dataclass(frozen=True)
class Both(Work):
    """A job is the inputs of a call; its result, the outputs of the float program and of the
    compiled model, or of the artifact in `files`."""

    program: Program
    compiled: CompiledModel | None
    files: Mapping[str, bytes]

    @staticmethod
    def of(program: Program, compiled: CompiledModel) -> "Both":
        """Takes along the files of a loaded artifact: a worker may be on another machine."""
        if not isinstance(compiled.vmfb, Path):
            return Both(program, compiled, {})
        folder = compiled.vmfb.parent
        files = {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.is_file()}
        return Both(program, None, files)

    def open(self) -> Callable[[Sequence[np.ndarray]], Result]:
        reference, compiled = XlaExecutable(self.program), self._compiled()
        compiled.check_processor()

        def outputs(inputs: Sequence[np.ndarray]) -> Result:
            sides = {"float": reference(*inputs), "quantized": compiled.call_flat(inputs)}
            return {f"{s}:{i}": x for s, found in sides.items() for i, x in enumerate(found)}

        return outputs

    def _compiled(self) -> CompiledModel:
        if self.compiled is not None:
            return self.compiled
        with temporary_folder() as folder:
            for name, content in self.files.items():
                (folder / name).write_bytes(content)
            found = load(folder)
            _ = found.executable  # holds its files from now on
            return found

    def key(self) -> Any:
        """All that a result depends on."""
        parts: list[Any] = ["compare", program_digest(self.program), self.files]
        if (made := self.compiled) is not None:
            weights = made.parameters if isinstance(made.parameters, Mapping) else {}
            parts += [[p.vmfb for p in made.programs], weights]
        return parts


def outputs_of_both(
    given: Evaluation, compiled: CompiledModel, workers: Workers, progress: Progress
) -> Iterator[Pair]:
    """The outputs of both models, call by call in order, made by `workers`."""
    if workers.inside:
        reference = XlaExecutable(given.source.program)
        for arrays in given.tracked(progress, "compare"):
            yield reference(*arrays), compiled.call_flat(arrays)
        return
    work = Both.of(given.source.program, compiled)
    items = [tuple(map(np.asarray, call)) for call in given.calls]
    kept = Cache("job", work.key())
    results = run_jobs(work, items, workers, stage="compare", progress=progress, kept=kept)
    count = len(given.source.program.outputs)
    for found in in_order(results):
        sides = ([found[f"{s}:{i}"] for i in range(count)] for s in ("float", "quantized"))
        yield next(sides), next(sides)
