"""Stored forms of every weight, under several plans of one program.

Recovery of weights runs for each plan, which takes most of the time in front of the first
measurement. Plans that store the same are run once. What they ask of the calibration data is found
here, with all cores: all look at the same batches, so that most ask the same, and the answers go
along to whoever does them. Each set of encodings is a job. What a job gives depends on no other, so
that the result is the same wherever each was done."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from jq.artifact.jobs import HERE, Result, Work, Workers, run_jobs, work_digest
from jq.artifact.store import Cache
from jq.base.progress import Progress
from jq.driver.job import Job
from jq.formats import Encoding
from jq.ir import Program
from jq.mixed_precision.groups import Stored
from jq.passes.base import Pass, PassContext, Report, run_all, unheard
from jq.passes.isolated import parts_of
from jq.planning.decisions import QuantPlan
from jq.planning.moments.collect import MomentsCache, gains_bytes, sensitivity
from jq.planning.moments.gains import ROOM, Gains
from jq.planning.moments.inputs import Wanted

# Gains that the recovery of several plans will ask for, found once, in front of them. A gain is how
# much a row of a product moves the output, in one batch of the calibration data: a function of the
# program alone, whichever plan asks, and each batch is independent of the others.
BATCHES = 8  # of a job


@dataclass(frozen=True)
class RowGains(Work):
    """A job is the numbers of some batches; its result, the gains of their rows under `NUMBER NAME`
    (see `Gains.unpack`); nothing where the program has no gradient."""

    program: Program
    wanted: Sequence[Wanted]
    data: Sequence[Sequence[np.ndarray]]

    def open(self) -> Callable[[tuple[int, ...]], Result]:
        gains, names = Gains(), [w.name for w in self.wanted]
        make = partial(sensitivity, self.program.clone(), self.wanted)

        def found(numbers: tuple[int, ...]) -> Result:
            return {
                f"{i} {name}": rows
                for i in numbers
                for name, rows in gains.of(names, i, self.data[i], make).items()
            }

        return found


def find_gains(
    program: Program,
    asked: Iterable[tuple[Mapping[str, Wanted], Iterable[int]]],
    cx: PassContext,
    workers: Workers,
    progress: Progress,
) -> None:
    """Adds to `cx.gains` what several plans ask for, as far as there is room; `asked` are the
    inputs of each plan, by name, and the numbers of its batches."""
    wanted: dict[str, Wanted] = {}
    numbers: set[int] = set()
    for inputs, batches in asked:
        wanted |= inputs
        numbers.update(batches)
    gains = cx.gains
    missing = [i for i in sorted(numbers) if any((name, i) not in gains.known for name in wanted)]
    if not missing:
        return
    missing = missing[: (ROOM - gains.size) // gains_bytes(program, wanted.values())]
    items = [tuple(missing[i : i + BATCHES]) for i in range(0, len(missing), BATCHES)]
    work = RowGains(program, list(wanted.values()), list(cx.data or ()))
    kept = Cache("job", work_digest(work))
    for _, found in run_jobs(work, items, workers, progress=progress, kept=kept):
        gains.unpack(found)


@dataclass(frozen=True)
class Recoveries(Work):
    """A job: the numbers of some plans; its result: weights that passes add, as `NUMBER NAME:PART`.

    Attributes:
        program: prepared, float.
        context: what passes may read besides the plan; every job begins with its gains."""

    program: Program
    passes: Sequence[Pass]
    plans: Sequence[QuantPlan]
    context: PassContext

    @staticmethod
    def of(job: Job, plans: Sequence[QuantPlan], report: Report) -> "Recoveries":
        cx = job.context(plans[0], report)
        cx.gains.forget_gradient()
        return Recoveries(job.program, job.pipeline.passes["qdq"], plans, cx)

    def elsewhere(self) -> "Recoveries":
        """The work for other processes: they cannot report, nor see what earlier runs found."""
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
        """Inputs whose rows a plan weighs, and batches of data that it takes moments of."""
        cx = replace(self.context, plan=self.plans[number])
        inputs: dict[str, Wanted] = {}
        batches: set[int] = set()
        for p in self.passes:
            if p.chosen(cx.settings):
                more, numbers = p.weighs(self.program, cx)
                inputs |= {w.name: w for w in more}
                batches.update(numbers)
        return inputs, batches

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
        report: told the share that is done, of a plan, or of the jobs."""
    if once:
        first, *others = plans
        known = stored_weights(job, [first], workers, report)[0]
        return [known, *(_with_known(job, plan, known) for plan in others)]
    # Of plans that store the same, by the first: recovery may look at which ops are integer.
    integer = [[op.decision == "integer" for op in plan.ops] for plan in plans]
    alike = _alike(range(len(plans)), lambda i: (plans[i].weights, integer[i]))
    numbers = {each[0]: each for each in alike}
    out: dict[int, Mapping[str, Stored]] = {}
    work = Recoveries.of(job, plans, report)
    told: Progress = lambda stage, share: report(share)  # noqa: E731
    asked = [work.asked(number) for number in numbers]
    find_gains(work.program, asked, work.context, workers, told)
    # All plans look at the same batches: their moments are taken once, and those of a choice that
    # mixes the plans are among them.
    batches = sorted(set().union(*(numbers for _, numbers in asked)))
    work = replace(work, context=replace(work.context, batches=batches))
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
    items = [tuple(each) for each in _alike(numbers, lambda i: work.plans[i].weights)]
    if workers.inside or len(items) == 1:
        yield from ((item, work.recovered(item)) for item in items)
        return
    for item in items:
        work.look(item[0])
    work = work.elsewhere()
    kept = Cache("job", work_digest(work))
    for i, found in run_jobs(work, items, workers, progress=told, kept=kept):
        yield items[i], found


def _alike(numbers: Iterable[int], key: Callable[[int], Any]) -> Iterable[list[int]]:
    """Numbers of plans, those with equal keys together."""
    found: dict[int, list[int]] = {}
    for i in numbers:
        found.setdefault(next((k for k in found if key(k) == key(i)), i), []).append(i)
    return found.values()


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
