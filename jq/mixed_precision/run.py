"""The search, step by step: candidates, sensitivities, frontier, choice, proof."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jq.artifact.jobs import Workers, as_workers, prepare
from jq.base.errors import UserError, check_type
from jq.base.progress import Progress, Stages, heard
from jq.driver.comparison.metrics import Metric
from jq.driver.job import check_matched, prepare_job
from jq.driver.request import Request
from jq.frontends.model import Model
from jq.frontends.source import AnyModel, Data, check_files, trace
from jq.frontends.tracing.source import load_function
from jq.mixed_precision import costs
from jq.mixed_precision.budget import check_figures, check_reached, parse_budget
from jq.mixed_precision.candidates import make_candidates
from jq.mixed_precision.choose import BudgetChooser
from jq.mixed_precision.evaluate import Judge, check_state, sensitivities, state_of
from jq.mixed_precision.problem import MixedPipeline, Problem, check_rules, make_problem, rules_of
from jq.mixed_precision.proof import Proof, latency_of, prove
from jq.mixed_precision.result import SearchResult, result
from jq.mixed_precision.switch import Choices
from jq.passes.pipeline.file import Rules, SettingsLike
from jq.reporting.measuring.evaluation import Evaluation, check_metrics, evaluation_of

ATTEMPTS = 4  # compilations until the compiled model holds what the search promised
SAMPLES = 16  # calls that sensitivities are measured on


def search(
    model: AnyModel,
    budget: str | Sequence[str],
    pipeline: str = "int8-dynamic",
    target: str = "llvm-cpu",
    *,
    candidates: Sequence[str] = (),
    data: Data = None,
    metric: Metric | Sequence[Metric] | None = None,
    labels: Any = None,
    calibration: Data = None,
    settings: SettingsLike = None,
    rules: Rules = None,
    cost: str | None = None,
    samples: int = SAMPLES,
    state: str | Path | None = None,
    iree_flags: Sequence[str] = (),
    workers: Workers | int | str = 1,
    progress: Progress | None = None,
) -> SearchResult:
    """Chooses a format for every layer: the cheapest that holds a budget, proved on the result.

    The arguments that are not listed are those of `jq.compile`.

    Args:
        budget: one or several, see `jq.mixed_precision.budget`. Of resources alone: the most exact
            choice within them.
        pipeline: the base: its passes run, its own formats are a candidate.
        candidates: see `jq.mixed_precision.candidates`.
        data: see `jq.compare`; the budgets are held on it.
        metric: see `jq.compare`.
        labels: see `jq.compare`.
        cost: what to save: `size`, `work`, `latency` or a sum of these shares; `size+work` by
            default, or the resources that there are budgets for.
        samples: calls that the sensitivity of each layer is measured on.
        state: a file to keep measurements in, by default in the user's cache directory.
        workers: who quantizes weights for each candidate and measures errors: this process, more
            of them, or a cluster (see `jq.artifact.jobs.as_workers`). The result is the same.
            Latency is measured here, that of single layers estimated; of a target with a table
            `[hardware]` both are (`jq.estimate`), as shares of what the base pipeline takes.

    Raises:
        UserError: among others when a budget cannot be met; it says what can be reached.

    Example:
        ```python
        found = jq.search(model, "sqnr_db>=20", "int8-dynamic", samples=2)
        print(found)
        ```"""
    texts = budget if isinstance(budget, Sequence) and not isinstance(budget, str) else [budget]
    budgets = tuple(map(parse_budget, texts))
    if not budgets:
        raise UserError("no budget", hint='give one, such as --budget "cosine>=0.995"')
    limited = [b.name for b in budgets if b.is_resource]
    check_type("candidates", candidates, list, tuple)
    check_type("samples", samples, int)
    check_type("state", state, str, Path, type(None))
    check_type("cost", cost, str, type(None))
    if cost is None:
        cost = "+".join(dict.fromkeys(limited)) or costs.USUAL
    costs.check_objective(cost)
    where = as_workers(workers)
    stages, told = Stages.shown(progress), heard(progress)
    request = Request(
        *(pipeline, target, settings, rules, calibration), iree_flags=iree_flags, stages=stages
    )
    base = request.base
    if base.open:
        what = f"pipeline {base.name} chooses formats without a budget, within `compile`"
        hint = "start from int8-static or int8-dynamic; --candidates says what an op may be"
        raise UserError(what, hint=hint)
    make_candidates(candidates, base.settings, base.name)  # their names, before slow work
    request.check()
    check_files(data)
    check_state(state)
    functions = tuple(load_function(b.function) for b in budgets if b.function)
    prepare(where, "jq.mixed_precision.encodings", "jq.passes.order")
    model = check_metrics(model, metric, labels)
    own = model.metric if isinstance(model, Model) and metric is None else None
    asked = check_figures(budgets, metric or own)
    check_metrics(model, asked, labels)
    with stages("trace"):
        model = trace(model)
    evaluation = evaluation_of(model, data, labels, metric)
    evaluation.check_labels(asked)
    evaluation = replace(evaluation, metrics=(*evaluation.metrics, *functions))
    check_reached(budgets, evaluation)
    check_matched(model, request)
    job = prepare_job(model, request)
    chosen = make_candidates(candidates, job.pipeline.settings, job.pipeline.name)
    problem = make_problem(job, chosen, stages, where)
    if not problem.groups:
        names = ", ".join(c.name for c in chosen)
        what = f"the candidates ({names}) do not differ for any op of this model and target"
        hint = "`jaxq explain` says why ops are declined; give other --candidates"
        raise UserError(what, hint=hint)
    resources = {
        "size": costs.size_of(job, problem.groups, problem.base_stored),
        "work": costs.work_in(job, problem.groups, problem.base),
    }
    costs.check_least(resources, budgets)
    calls = costs.spread(evaluation.calls, samples)  # not what recovery steps were fitted to
    known = state_of(job, calls, state)
    with stages("sensitivity"):
        work = Choices(problem.switch(), calls)
        errors = sensitivities(work, known, told, where)
    judge = Judge(evaluation, work, told, where)
    judge.require([b.figure for b in budgets if not b.is_resource])
    if "latency" in (*limited, *costs.check_objective(cost)):
        with stages("latency"):
            resources["latency"] = latency_of(problem, known)
    priced = costs.objective(cost, resources)
    points = [list(zip(*pair, strict=True)) for pair in zip(priced, errors, strict=True)]
    chooser = BudgetChooser(problem.groups, points, resources, budgets, judge)
    named = str(Path(pipeline).resolve()) if Path(pipeline).suffix == ".toml" else pipeline
    note = f"Found by `jaxq search` for {', '.join(map(str, budgets))}"
    start = MixedPipeline(named, request.own_settings, job.pipeline.rules, (note,))
    choice, file, proof = _proved(chooser, problem, start, judge.evaluation, stages, where)
    return result(chooser, choice, file, proof, stages)


def _proved(
    chooser: BudgetChooser,
    problem: Problem,
    start: MixedPipeline,
    evaluation: Evaluation,
    stages: Stages,
    workers: Workers,
) -> tuple[costs.Choice, MixedPipeline, Proof]:
    """A choice whose compiled model holds all budgets; what it lacks is learnt from."""
    for _ in range(ATTEMPTS):
        choice = chooser.choose()
        rules = rules_of(problem.job, problem.groups, choice)
        check_rules(problem.job, problem.groups, choice, rules)
        file = replace(start, rules=(*start.rules, *rules))
        latency = chooser.resources.get("latency")
        proof = prove(problem, file, evaluation, latency, stages, workers)
        reached = {b: proof.value(b) for b in chooser.margins}
        broken = {b: v for b, v in reached.items() if v is not None and not chooser.meets(b, v)}
        if not broken:
            told = "; ".join(f"{b.name} {v:.6g}" for b, v in reached.items() if v is not None)
            return choice, replace(file, notes=(f"{file.notes[0]}: {told}.",)), proof
        for b, v in broken.items():
            chooser.learn(b, choice, v)
    b, v = next(iter(broken.items()))
    what = f"budget {b} cannot be met: compiled, the last of {ATTEMPTS} choices reaches {v:.6g}"
    raise UserError(what, hint="ask for a little more than you need")
