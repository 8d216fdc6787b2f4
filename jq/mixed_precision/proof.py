"""The choice as a user gets it: the pipeline file, compiled and compared with float; and latencies.

That of each option is a share of the model's, as `jq.mixed_precision.speed` estimates it. The
model's is measured; for a target that states its rates it is estimated, too (`jq.estimate`). What
fusion changes is not seen; the compiled choice is measured in the end."""

import glob
import time
from dataclasses import dataclass, replace

import numpy as np

from jq.artifact.jobs import HERE, Workers
from jq.artifact.keys import digest
from jq.base import Stages, temporary_folder
from jq.base.system.processor import this_processor
from jq.device.assumed import planned_job
from jq.device.estimating import estimated
from jq.driver.comparison.result import Comparison
from jq.driver.compiled import CompiledModel
from jq.driver.job import Job
from jq.driver.stages import build, plan_job
from jq.mixed_precision.budget import Budget
from jq.mixed_precision.costs import Resource
from jq.mixed_precision.evaluate import State
from jq.mixed_precision.problem import MixedPipeline, Problem, with_rules
from jq.mixed_precision.speed import estimated_shares
from jq.passes.pipeline import for_target, load_pipeline
from jq.reporting.benchmark.session import random_inputs
from jq.reporting.measuring.evaluation import Evaluation
from jq.reporting.measuring.measure import compare_compiled
from jq.target import FLOAT, Rule

SECONDS, LEAST = 0.2, 10  # measuring time of a program, and calls at least


def latency_of(problem: Problem, state: State) -> Resource:
    """The share of each option in the milliseconds of the model with all groups in float; of a
    target that states its rates, in those of the base pipeline."""
    if problem.job.target.hardware:
        whole = milliseconds(problem.job)
    else:
        names = [name for group in problem.groups for name in group.ops]
        key = f"latency {this_processor().model} {digest(names)}"
        if (known := state.values.get(key)) is None:
            rules = [Rule(pattern=glob.escape(name), override={"format": FLOAT}) for name in names]
            job = with_rules(problem.job, rules)
            known = median_ms(build(job, plan_job(job, Stages()), Stages()))
            state.put(key, known)
        whole = known
    return replace(estimated_shares(problem), name="latency", whole=whole)


def milliseconds(job: Job) -> float:
    """The time of the model as a job plans it, estimated."""
    prepared = replace(job.prepared, recover=False)  # the same ops, with other codes
    return float(estimated(planned_job(replace(job, prepared=prepared)))["total_ms"])


def median_ms(compiled: CompiledModel) -> float:
    """Median milliseconds of a call on one thread, with random inputs."""
    inputs = random_inputs(compiled.inputs)
    times: list[float] = []
    compiled.call_flat(inputs)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < LEAST:
        start = time.perf_counter()
        compiled.call_flat(inputs)
        times.append(1e3 * (time.perf_counter() - start))
    return float(np.median(times))


@dataclass(frozen=True)
class Proof:
    """A compiled choice. `resources`: shares of the float model's, as far as they are measured."""

    compiled: CompiledModel
    comparison: Comparison
    resources: dict[str, float]

    def value(self, budget: Budget) -> float | None:
        """The value that was reached; None for a resource that is known without measuring."""
        if budget.is_resource:
            return self.resources.get(budget.name)
        return budget.value(self.comparison)


def prove(
    problem: Problem,
    pipeline: MixedPipeline,
    evaluation: Evaluation,
    latency: Resource | None,
    stages: Stages,
    workers: Workers = HERE,
) -> Proof:
    """Compiles what the pipeline file says, compares it, and measures its latency if asked to
    (of a target that is not at hand: estimates it)."""
    with temporary_folder() as folder:
        loaded = load_pipeline(str(pipeline.save(folder / "mixed.toml")))
    job = problem.job
    own_files = {**job.own_files, "pipeline": loaded.file.model_dump()}
    job = replace(job, pipeline=for_target(loaded, job.target), own_files=own_files)
    compiled = build(job, plan_job(job, stages), stages)
    comparison = compare_compiled(evaluation, compiled, stages.progress, workers=workers)
    weights = compiled.audit().weights  # stored bytes over those of the float model
    whole = sum(w.float_bytes for w in weights) or 1
    resources = {"size": sum(w.stored_bytes for w in weights) / whole}
    if latency is not None:
        ms = milliseconds(job) if job.target.hardware else median_ms(compiled)
        resources["latency"] = ms / latency.whole
    return Proof(compiled, comparison, resources)
