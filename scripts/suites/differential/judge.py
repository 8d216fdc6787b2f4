"""Outcomes of drawn graphs: compiled as one program, evaluated, compared."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jq.base.errors import UserError
from jq.base.progress import Stages
from jq.driver.job import Job, prepare_job
from jq.driver.request import Request
from jq.driver.stages import build, plan_job, rewrite_job
from jq.ir import Program
from jq.ir.quantized.edges import edge_name
from jq.passes.pipeline import make_plan
from jq.planning.calibration.observer import Range
from jq.planning.calibration.ranges import Ranges, site
from suites.differential.evaluate import Arrays, by_interpreter, by_xla, difference
from suites.differential.kinds import Kind, kind_of
from suites.differential.modules import Module, drawn, module_of
from suites.differential.numpy_values import by_numpy
from suites.outcome import DID_NOT_RUN, FAILED, REFUSED, RIGHT, WRONG, Outcome

TOGETHER = 20  # graphs of a module, all of one kind


@dataclass(frozen=True)
class Case:
    """Attributes:
    iree: whether it is compiled by IREE as well, and by XLA as a whole.
    """

    seed: int
    iree: bool = False

    @property
    def kind(self) -> Kind:
        return kind_of(self.seed // TOGETHER)


def judge(cases: Sequence[Case]) -> list[Outcome | None]:
    """An outcome of each, or None where they have to be tried in smaller batches."""
    logging.disable(logging.WARNING)
    kind, iree, alone = cases[0].kind, cases[0].iree, len(cases) == 1
    try:
        module = module_of([drawn(case.seed, kind) for case in cases])
        results = evaluated(module, kind, iree, iree or alone)
    except Exception as error:
        return [outcome(cases[0], *failure(error))] if alone else [None] * len(cases)
    return [_judged(case, results, i, len(cases)) for i, case in enumerate(cases)]


def failure(error: Exception) -> tuple[str, str]:
    """Verdict and reason."""
    said = str(error).partition("\n")[0][:300]
    if isinstance(error, UserError) and not said.startswith(DID_NOT_RUN):
        return REFUSED, said
    return FAILED, f"{type(error).__name__}: {said}"


def fails(case: Case, before: Outcome, module: Module) -> bool:
    """True for a smaller module that fails as the case did."""
    try:
        results = evaluated(module, case.kind, case.iree, True)
    except Exception as error:
        return failure(error)[0] == before.verdict and failure(error)[1][:40] == before.reason[:40]
    return before.verdict == WRONG and bool(_differs(results, 0, 0))


def _judged(
    case: Case, results: Mapping[str, list[list[Arrays]]], i: int, count: int
) -> Outcome | None:
    """The outcome of a graph; None for a wrong one of several, which is tried alone."""
    calls = range(len(next(iter(results.values()))))
    found = next(filter(None, (_differs(results, call, i) for call in calls)), "")
    if found and count > 1:
        return None
    return outcome(case, WRONG if found else RIGHT, found)


def _differs(results: Mapping[str, list[list[Arrays]]], call: int, i: int) -> str:
    return difference({name: found[call][i] for name, found in results.items()})


def outcome(case: Case, verdict: str, reason: str = "") -> Outcome:
    return Outcome(str(case.kind), str(case.seed), verdict, reason)


def identify(case: Case) -> tuple[str, str]:
    return str(case.kind), str(case.seed)


def evaluated(
    module: Module, kind: Kind, iree: bool, compiled: bool
) -> dict[str, list[list[Arrays]]]:
    """By evaluator: for each set of inputs, the results of each graph."""
    data = [tuple(arrays) for arrays in module.inputs]
    job = prepare_job(
        module.program, Request(kind.pipeline, kind.target, kind.settings, None, data)
    )
    job = ranged(job)
    stages = Stages()
    plan = plan_job(job, stages)
    results: dict[str, list[Arrays]] = {}
    if iree:
        built = build(job, plan, stages, cache=False)
        program = built.levels["integer"]
        results["IREE"] = [built.call_flat(arrays) for arrays in module.inputs]
    else:
        program = rewrite_job(job, plan)["integer"]
    results = {
        "the interpreter": by_interpreter(program, module.inputs[:1]),
        "XLA": by_xla(program, module.inputs[: 2 if iree else 1], compiled),
        "NumPy": by_numpy(program, module.inputs[:1]),
    } | results
    return {name: [module.split(found) for found in each] for name, each in results.items()}


def ranged(job: Job) -> Job:
    """With a drawn range for each activation that needs one: its scale is a power of two."""
    if job.pipeline.settings.activations.mode != "static":
        return job
    first = make_plan(job.program, job.pipeline, job.target)
    edges = [site(name, 0) for op in job.program.walk() if (name := edge_name(op))]
    names = sorted({*first.unranged, *edges})
    if not names:
        return job
    rng = np.random.default_rng(len(names))
    # One zero point: the union of two ranges, which edges may come to share, is one of them.
    zero = int(rng.integers(0, 256)) if rng.random() < 0.7 else 0
    drawn = {name: int(rng.integers(0, 7)) for name in names}
    known = job.pipeline.settings.activations
    planned = Ranges(
        {name: _range(drawn[name], zero, known.format, known.scheme) for name in names}
    )
    plan = make_plan(job.program, job.pipeline, job.target, planned)
    encodings = {site(name, 0): tensor.encoding for name, tensor in plan.edges.items()}
    for op in plan.ops:
        encodings |= {site(op.name, i): t.encoding for i, t in op.operands.items()}
    of = {
        name: _range(k, zero, encodings[name].format, encodings[name].scheme)
        for name, k in drawn.items()
        if name in encodings
    }
    return replace(job, ranges=Ranges({**planned.sites, **of}))


def _range(k: int, zero: int, format: str, scheme: str) -> Range:
    """All numbers of a format, in steps of 2^-k if it has 8 bits."""
    fine = 2.0 ** -(k + 4) if "16" in format else 2.0**-k
    most = 2**15 if "16" in format else 2**7
    if scheme == "symmetric":
        return Range((1 - most) * fine, (most - 1) * fine)
    low = -zero * most // 128
    return Range(low * fine, (2 * most - 1 + low) * fine)


__all__ = ["Case", "Program", "judge"]
