"""The choice as a user gets it: the pipeline file, compiled and compared with float."""

from dataclasses import dataclass, replace

from jq.artifact.jobs import HERE, Workers
from jq.base.progress import Stages
from jq.base.system.files import temporary_folder
from jq.driver.comparison.outputs import Comparison
from jq.driver.compiled import CompiledModel
from jq.driver.stages import build, plan_job
from jq.mixed_precision.budget import Budget
from jq.mixed_precision.choice.problem import Problem
from jq.mixed_precision.choice.rules import MixedPipeline
from jq.mixed_precision.costs import Resource
from jq.mixed_precision.estimated import estimated_ms
from jq.mixed_precision.latency import median_ms
from jq.passes.pipeline import for_target, load_pipeline
from jq.reporting.measuring.evaluation import Evaluation
from jq.reporting.measuring.measure import compare_compiled


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
    resources = {"size": size_share(compiled)}
    if latency is not None:
        ms = estimated_ms(job) if job.target.hardware else median_ms(compiled)
        resources["latency"] = ms / latency.whole
    return Proof(compiled, comparison, resources)


def size_share(compiled: CompiledModel) -> float:
    """Stored bytes of all weights over those of the float model, as the audit counts them."""
    weights = compiled.audit().weights
    return sum(w.stored_bytes for w in weights) / (sum(w.float_bytes for w in weights) or 1)
