"""Runs jobs where the user wants them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from joblib import Parallel, delayed, parallel_config

from jq.artifact.jobs.clusters import Executor, check_address, dask, ray
from jq.artifact.jobs.processes import Processes, warm
from jq.artifact.jobs.work import Payload, Result, Work
from jq.artifact.store import Cache
from jq.base import JqError, Progress, UserError, silent, temporary_folder

DASK = ("tcp://", "tls://", "ws://", "wss://", "ucx://")
RAY = ("ray", "ray://")


@dataclass(frozen=True)
class Workers:
    """This process alone (`processes=1`), several here, or those of a Dask or Ray cluster.

    Attributes:
        processes: on this machine.
        dask: address of a scheduler, `tcp://host:8786`.
        ray: address of a cluster: `ray://host:10001`, or `auto`: the one that runs here already,
            else one that is started."""

    processes: int = 1
    dask: str = ""
    ray: str = ""

    @property
    def inside(self) -> bool:
        """True if jobs run in this process."""
        return self.processes == 1 and not self.dask and not self.ray

    def __str__(self) -> str:
        return self.dask or (self.ray and f"ray ({self.ray})") or f"{self.processes} processes"


HERE = Workers()


def as_workers(given: Workers | int | str) -> Workers:
    """A number of processes, or the address of a cluster: `"tcp://host:8786"` of Dask's scheduler,
    `"ray"` or `"ray://host:10001"`.

    Raises:
        UserError: it is neither, or nothing takes a connection at the address."""
    if isinstance(given, Workers):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        if given < 1:
            raise UserError(f"jobs need at least one process, got {given}")
        return Workers(given)
    if isinstance(given, str) and given.startswith(DASK):
        check_address(given)
        return Workers(dask=given)
    if isinstance(given, str) and (given == RAY[0] or given.startswith(RAY[1])):
        return Workers(ray="auto" if given == RAY[0] else given)
    hint = "a number of processes, tcp://HOST:PORT of a Dask scheduler, ray or ray://HOST:PORT"
    raise UserError(f"no workers are {given!r}", hint=hint)


ATTEMPTS = 3  # at a cluster that answers and loses what it was given


def run_jobs(
    work: Work,
    items: Sequence[Any],
    workers: Workers = HERE,
    *,
    stage: str = "jobs",
    progress: Progress = silent,
    kept: Cache | None = None,
) -> Iterator[tuple[int, Result]]:
    """The number and result of every job, as each is done; in order where this process does them.

    A result depends on the work and its item alone, so it is the same wherever it was made, on
    processors that compute alike. A worker that ends loses the job that it had, on Dask also one
    whose result was not fetched yet: another does it.

    Args:
        items: one a job.
        stage: what `progress` is told.
        kept: what earlier runs found is taken from there, and what this one finds kept.

    Raises:
        JqError: a job failed, or the cluster is gone; what was done until then has been given."""
    waiting = dict(enumerate(items))
    for number, item in enumerate(items):
        if kept and (known := kept.get(item)) is not None:
            del waiting[number]
            yield number, known
    total = max(len(items), 1)
    progress(stage, 1 - len(waiting) / total)
    for number, result in (
        _inside(work, waiting) if workers.inside else _away(work, waiting, workers)
    ):
        item = waiting.pop(number)
        if kept:
            kept.put(item, result)
        progress(stage, 1 - len(waiting) / total)
        yield number, result


def prepare(workers: Workers, *modules: str) -> None:
    """Starts this machine's processes now, and has them import the modules of later jobs."""
    if not (workers.inside or workers.dask or workers.ray):
        warm(workers.processes, modules)


def in_order(results: Iterable[tuple[int, Result]]) -> Iterator[Result]:
    """Results in the order of their items, each as soon as those before it are there."""
    early: dict[int, Result] = {}
    wanted = 0
    for number, result in results:
        early[number] = result
        while wanted in early:
            yield early.pop(wanted)
            wanted += 1


def _inside(work: Work, waiting: dict[int, Any]) -> Iterator[tuple[int, Result]]:
    if waiting:
        call = work.open()
        for number, item in list(waiting.items()):
            yield number, call(item)


def _away(work: Work, waiting: dict[int, Any], workers: Workers) -> Iterator[tuple[int, Result]]:
    """Runs `waiting` elsewhere; tries again what is left of it where a cluster has lost it."""
    for attempt in range(ATTEMPTS):
        if not waiting:
            return
        before = len(waiting)
        with temporary_folder() as folder, _place(work, workers, folder) as place:
            try:
                yield from (_in_turns if place.together else _parallel)(place, dict(waiting))
            except JqError:
                raise
            except Exception as error:
                if not place.alive():
                    what = f"{workers} is gone: {before - len(waiting)} of {before} jobs were done"
                    hint = "what was done is kept: the same command goes on from there"
                    raise JqError(what, hint=hint) from error
                if attempt == ATTEMPTS - 1:
                    raise
    if waiting:
        raise JqError(f"{workers} lost {len(waiting)} jobs")


def _parallel(place: Executor, waiting: dict[int, Any]) -> Iterator[tuple[int, Result]]:
    with parallel_config(**place.options):
        # One job at a time for each worker, and one that waits: none is held up by another.
        run = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="2*n_jobs")
        yield from run(place.task(number, item) for number, item in waiting.items())


def _in_turns(place: Executor, waiting: dict[int, Any]) -> Iterator[tuple[int, Result]]:
    """Some jobs after the other: what is done is known when all of them are."""
    tasks = [place.task(number, item) for number, item in waiting.items()]
    with parallel_config(**place.options):
        for first in range(0, len(tasks), place.together):
            yield from Parallel(batch_size=1)(tasks[first : first + place.together])


@contextmanager
def _place(work: Work, workers: Workers, folder: Any) -> Iterator[Executor]:
    if workers.dask:
        with dask(workers.dask, Payload.of(work)) as place:
            yield place
    elif workers.ray:
        with ray(workers.ray, Payload.of(work)) as place:
            yield place
    else:
        processes = Processes(workers.processes, Payload.of(work, folder))
        try:
            options = {"backend": "threading", "n_jobs": workers.processes}
            yield Executor(options, delayed(processes), lambda: True)
            processes.keep()
        finally:
            processes.stop()
