"""Stored forms of every weight, under several plans of one program.

Recovery of weights runs for each plan, which takes most of the time in front of the first
measurement. Plans that store the same are run once. What they ask of the calibration data is found
here, with all cores: all look at the same batches, so that most ask the same, and the answers go
along to whoever does them. Each set of encodings is a job. What a job gives depends on no other, so
that the result is the same wherever each was done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np

from jq.artifact.jobs import HERE, Result, Work, Workers, run_jobs, work_digest
from jq.artifact.store import Cache
from jq.base.progress import Progress
from jq.driver.job import Job
from jq.formats import Encoding
from jq.ir import Program
from jq.mixed_precision.choice.gains import find_gains
from jq.mixed_precision.choice.groups import Stored
from jq.passes.base import Pass, PassContext, Report, run_all, unheard
from jq.passes.isolated import parts_of
from jq.planning.decisions import QuantPlan
from jq.planning.moments.inputs import Wanted
from jq.planning.moments.moments_cache import MomentsCache


@dataclass(frozen=True)
class Recoveries(Work):
    """A job is the numbers of some plans; its result, the weights that passes add, under
    `NUMBER NAME:PART`.

    Attributes:
        program: prepared, float.
        context: what passes may read besides the plan; every job begins with its gains.
    """

    program: Program
    passes: Sequence[Pass]
    plans: Sequence[QuantPlan]
    context: PassContext

    @staticmethod
    def of(job: Job, plans: Sequence[QuantPlan], report: Report) -> Recoveries:
        cx = job.context(plans[0], report)
        cx.gains.forget_gradient()
        return Recoveries(job.program, job.pipeline.passes["qdq"], plans, cx)

    def elsewhere(self) -> Recoveries:
        """For other processes: they cannot report, nor see what earlier runs found."""
        cx = self.context
        known = cx.moments if cx.moments and cx.moments.is_of(self.program) else MomentsCache()
        data = None if cx.data is None else list(cx.data)
        cx = replace(cx, results=None, data=data, report=unheard, moments=known)
        return replace(self, context=cx)

    def open(self) -> Callable[[tuple[int, ...]], Result]:
        if self.context.moments is not None:
            self.context.moments.attach(self.program)
        return self.recovered

    def asked(self, number: int) -> tuple[dict[str, Wanted], set[int]]:
        """The inputs that a plan weighs the rows of, and the batches of the calibration data that
        it takes moments of."""
        cx = replace(self.context, plan=self.plans[number])
        inputs: dict[str, Wanted] = {}
        batches: set[int] = set()
        for p in self.passes:
            if p.chosen(cx.settings):
                more, numbers = p.weighs(self.program, cx)
                inputs |= {w.name: w for w in more}
                batches.update(numbers)
        return inputs, batches

    def with_batches(self, batches: Iterable[int]) -> Recoveries:
        """All plans look at the same batches: their moments are taken once, and those of a choice
        that mixes the plans are among them."""
        return replace(self, context=replace(self.context, batches=sorted(batches)))

    def look(self, number: int) -> None:
        """Asks of the calibration data what recovery will ask under a plan."""
        cx = replace(self.context, gains=deepcopy(self.context.gains), plan=self.plans[number])
        for p in self.passes:
            if p.chosen(cx.settings):
                p.look(self.program, cx)

    def recovered(self, numbers: tuple[int, ...]) -> Result:
        found = {}
        for number in numbers:
            program = self.program.clone()
            # Of one plan alone what is found stays known, for the compilation that follows.
            gains = self.context.gains if len(self.plans) == 1 else deepcopy(self.context.gains)
            cx = replace(self.context, gains=gains, plan=self.plans[number])
            run_all(self.passes, program, cx)
            for name, array in program.weights.items():
                if name not in self.program.weights:
                    found[f"{number} {name}"] = np.asarray(array)
        return found


def stored_weights(
    job: Job,
    plans: Sequence[QuantPlan],
    workers: Workers = HERE,
    report: Report = unheard,
    *,
    once: bool = False,
) -> list[Mapping[str, Stored]]:
    """The stored forms of every weight under each plan, in the order of the plans.

    Args:
        once: recovery runs for the first plan alone, which takes less time; weights that others
            encode otherwise are rounded plainly.
        workers: who does it; what another process did is kept for a later run.
        report: told the share that is done, of a plan, or of the jobs.
    """
    if once:
        first, *others = plans
        known = stored_weights(job, [first], workers, report)[0]
        return [known, *(_with_known(job, plan, known) for plan in others)]
    numbers: dict[int, list[int]] = {}  # of plans that store the same, by the first
    for i, plan in enumerate(plans):
        same = (k for k in numbers if _stores_alike(plans[k], plan))
        numbers.setdefault(next(same, i), []).append(i)
    out: dict[int, Mapping[str, Stored]] = {}
    work = Recoveries.of(job, plans, report)
    told: Progress = lambda stage, share: report(share)  # noqa: E731
    asked = [work.asked(number) for number in numbers]
    find_gains(work.program, asked, work.context, workers, told)
    work = work.with_batches(set().union(*(batches for _, batches in asked)))
    for item, found in _recovered(work, numbers, workers, told):
        for number in item:
            start = f"{number} "
            chosen = {k.removeprefix(start): v for k, v in found.items() if k.startswith(start)}
            stored = _stored(job, plans[number].weights, chosen)
            out |= dict.fromkeys(numbers[number], stored)
    return [out[i] for i in range(len(plans))]


def _recovered(
    work: Recoveries, numbers: Iterable[int], workers: Workers, told: Progress
) -> Iterator[tuple[tuple[int, ...], Result]]:
    """Numbers of plans, and what there is of them: here, or from jobs."""
    items = _with_equal_weights(numbers, work.plans)
    if workers.inside or len(items) == 1:
        yield from ((item, work.recovered(item)) for item in items)
        return
    for item in items:
        work.look(item[0])
    work = work.elsewhere()
    kept = Cache("job", work_digest(work))
    for i, found in run_jobs(work, items, workers, progress=told, kept=kept):
        yield items[i], found


def _with_equal_weights(
    numbers: Iterable[int], plans: Sequence[QuantPlan]
) -> list[tuple[int, ...]]:
    """The numbers of plans whose weights have equal encodings, together."""
    alike: list[list[int]] = []
    for number in numbers:
        same = (j for j in alike if plans[j[0]].weights == plans[number].weights)
        if found := next(same, None):
            found.append(number)
        else:
            alike.append([number])
    return [tuple(found) for found in alike]


def _stores_alike(a: QuantPlan, b: QuantPlan) -> bool:
    """True if recovery finds the same: it may look at which ops are integer."""
    integer = [[op.decision == "integer" for op in plan.ops] for plan in (a, b)]
    return a.weights == b.weights and integer[0] == integer[1]


def _with_known(job: Job, plan: QuantPlan, known: Mapping[str, Stored]) -> Mapping[str, Stored]:
    wanted = plan.weights
    same = {n: known[n] for n in wanted if n in known and known[n].encoding == wanted[n]}
    return same | _stored(job, {n: e for n, e in wanted.items() if n not in same}, {})


def _stored(
    job: Job, weights: Mapping[str, Encoding], chosen: Mapping[str, np.ndarray]
) -> dict[str, Stored]:
    stored = {}
    for name, enc in weights.items():
        parts = parts_of(job.program.weights[name], name, enc, chosen)
        if (total := chosen.get(f"{name}:sum")) is not None:
            parts["sum"] = total
        stored[name] = Stored(enc, parts)
    return stored
