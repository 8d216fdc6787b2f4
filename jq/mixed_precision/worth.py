"""The choice of most worth, where there is no budget: closer is better, and faster is better.

Of all choices on the frontier of time and error it is the one of least

    log(time) + WORTH * log(error + NOISE_FLOOR)

so a bit of precision (6.02 dB) is worth a tenth of the time, as long as the error is not small
enough. No speed is worth an error above `FLOOR`: a choice within it comes before all that are not,
and where there is none, the closest is taken. Each candidate for all ops is one of the choices:
where times and errors are as estimated, none of them is both faster and closer than what is chosen.
What is chosen op by op has to be worth a hundredth of the time more than the best of them, since
estimates know no better.

Only options that might be chosen are measured: those that were not yet count as exact, until the
choice has none of them. What is chosen is then measured as a whole beside its neighbours on the
frontier, since errors do not quite add up."""

import math
from collections.abc import Callable

from jq.driver.comparison.result import FLOOR_DB
from jq.frontends.source import Calls
from jq.ir.oracle.xla import XlaExecutable
from jq.mixed_precision.candidates import Candidate
from jq.mixed_precision.costs import Choice, cheapest, frontier, spread, total
from jq.mixed_precision.groups import Option
from jq.mixed_precision.problem import Problem
from jq.mixed_precision.speed import estimated_cycles
from jq.mixed_precision.switch import Alone, Choices, Outputs, noise

BIT_WORTH = 0.1  # the share of the time that a bit more of precision is worth
NOISE_FLOOR = 1e-4  # noise over signal (40 dB): to be closer than that is worth little
WORTH = math.log(1 + BIT_WORTH) / math.log(4)
FLOOR = 10 ** (-FLOOR_DB / 10)  # noise over signal that no speed is worth
MIN_GAIN = 0.01  # of the time, or its worth in error, that a choice op by op gains
RUNS = 128  # of the model, about, that measure the first option of every group
SAMPLES, JUDGED = 4, 8  # calls at most: for single groups, for whole choices
NEIGHBOURS = 2  # choices of the frontier on either side of the best that are measured as a whole


class WorthChooser:
    """Knows what options take, and measures the errors that it needs."""

    def __init__(
        self, problem: Problem, data: Calls, report: Callable[[float | None], None]
    ) -> None:
        self.problem, self.groups, self.report = problem, problem.groups, report
        self.cycles = estimated_cycles(problem)
        self._errors = [[0.0 if _exact(o) else None for o in g.options] for g in self.groups]
        count = max(1, min(SAMPLES, RUNS // len(self.groups)))
        self._calls = spread(data, max(count, JUDGED))
        self._switch = problem.switch()
        self._measure = Choices(self._switch, spread(data, count)).open()
        self._known: dict[Choice, float] = {}
        self._references, self._between = self._float()

    def _float(self) -> tuple[list[Outputs], float]:
        """The float program's outputs, and the error of what is rounded between ops in any case."""
        rounded = self._switch.run(None, self._calls)
        if not self.problem.base.edges:
            return rounded, 0.0
        run = XlaExecutable(self.problem.job.program)
        exact: list[Outputs] = [run(*x) for x in self._calls]
        return exact, noise(exact, rounded)

    def choose(self) -> Choice:
        while True:
            best, path = self._best()
            missing = [(g, o) for g, o in enumerate(best) if self._errors[g][o] is None]
            if not missing:
                break
            for done, (g, o) in enumerate(missing):
                self.error(g, o)
                self.report(done / len(missing))
        # From the best towards less error; the most exact one where none is within the floor.
        towards = path[: path.index(best) + 1]
        at = cheapest(towards, lambda choice: self.whole(choice) <= FLOOR) or 0
        near = path[max(0, at - NEIGHBOURS) : at + NEIGHBOURS + 1]
        fixed = self._fixed()
        losses = {c: self.loss(c, self.whole(c)) for c in (best, *near, *fixed)}
        chosen = min(losses, key=losses.__getitem__)
        uniform = min(fixed, key=losses.__getitem__, default=chosen)
        (far, loss), (fixed_far, least) = losses[chosen], losses[uniform]
        return chosen if far < fixed_far or loss < least - MIN_GAIN else uniform

    def _best(self) -> tuple[Choice, list[Choice]]:
        """The best choice as far as errors are known and add up, and the frontier."""
        pairs = zip(self.cycles.options, self._errors, strict=True)
        points = [[(c, e or 0.0) for c, e in zip(*pair, strict=True)] for pair in pairs]
        path = frontier(points)
        losses = [self.loss(choice, self._between + total(points, choice)[1]) for choice in path]
        return path[losses.index(min(losses))], path

    def _fixed(self) -> list[Choice]:
        """One candidate for all ops, for each that the target can multiply."""
        every = [self.uniform(candidate) for candidate in self.problem.plans]
        return [c for c in every if c is not None and math.isfinite(self.time(c))]

    def uniform(self, candidate: Candidate) -> Choice | None:
        numbers = [group.number(candidate) for group in self.groups]
        found = tuple(n for n in numbers if n is not None)
        return found if len(found) == len(numbers) else None

    def time(self, choice: Choice) -> float:
        """Cycles of a call, as estimated."""
        return self.cycles.of(choice)

    def loss(self, choice: Choice, error: float) -> tuple[float, float]:
        """The distance of an error from the floor, and then what time and error are worth."""
        far = max(0.0, math.log(error / FLOOR)) if error > 0 else 0.0
        return far, math.log(self.time(choice)) + WORTH * math.log(error + NOISE_FLOOR)

    def error(self, group: int, option: int) -> float:
        """The noise over signal that a group alone adds at the outputs, measured once."""
        known = self._errors[group][option]
        if known is None:
            known = float(self._measure(Alone(group, option))["noise"])
            self._errors[group][option] = known
        return known

    def whole(self, choice: Choice) -> float:
        """Noise over signal of a choice, measured once."""
        if choice not in self._known:
            found = self._switch.run(choice, self._calls)
            self._known[choice] = noise(self._references, found)
        return self._known[choice]


def _exact(option: Option) -> bool:
    return not option.stored and not any(p.operands or p.float_type for p in option.plans)
