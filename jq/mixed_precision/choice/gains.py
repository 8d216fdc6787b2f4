"""Gains that the recovery of several plans will ask for, found once, in front of them, by jobs.

A gain is how much a row of a product moves the output, in one batch of the calibration data
(`jq.planning.moments.gains`). It is a function of the program alone, whichever plan asks, and each
batch is
independent of the others: a job is some batches.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from jq.artifact.jobs import Result, Work, Workers, run_jobs, work_digest
from jq.artifact.store import Cache
from jq.base.progress import Progress
from jq.ir import Program
from jq.passes.base import PassContext
from jq.planning.moments.collect import Wanted, gains_bytes, sensitivity
from jq.planning.moments.gains import ROOM, Gains

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
    """Adds to `cx.gains` what several plans ask for, as far as there is room.

    Args:
        asked: of each plan: the inputs, by name, and the numbers of the batches.
    """
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
