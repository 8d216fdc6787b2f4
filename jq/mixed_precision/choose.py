"""Chooses the cheapest that really holds the budgets, or the most exact within them.

Errors are assumed to add up only to order the choices; whether a choice holds is asked of the model
itself, as far as one program tells (`Judge`). Where the compiled model is further off than that,
the difference becomes a margin on each budget."""

from collections import Counter
from collections.abc import Mapping, Sequence

from jq.base import UserError
from jq.mixed_precision import costs
from jq.mixed_precision.budget import Budget
from jq.mixed_precision.evaluate import Judge
from jq.mixed_precision.groups import Group

TRIES = 4  # of going further than the frontier does
PRICES = 5  # of a resource whose limit a choice breaks, each four times the one before


class BudgetChooser:
    """Chooses within budgets, again and again, while it learns what the compiled model reaches."""

    def __init__(
        self,
        groups: Sequence[Group],
        points: Sequence[costs.Points],
        resources: Mapping[str, costs.Resource],
        budgets: Sequence[Budget],
        judge: Judge,
    ) -> None:
        self.groups, self.points, self.resources, self.judge = groups, points, resources, judge
        self.priced, self.path = points, costs.frontier(points)
        self.figures = [b for b in budgets if not b.is_resource]
        self.limited = [b for b in budgets if b.is_resource]
        self.margins: dict[Budget, float] = dict.fromkeys(budgets, 0.0)

    def formats(self, choice: costs.Choice) -> Counter[str]:
        """Number of groups that have each candidate."""
        return Counter(g.options[i].name for g, i in zip(self.groups, choice, strict=True))

    def predict(self, budget: Budget, choice: costs.Choice) -> float:
        """The figure that the choice reaches, without the margin."""
        if budget.is_resource:
            return self.resources[budget.name].of(choice)
        return budget.value(self.judge(choice))

    def learn(self, budget: Budget, choice: costs.Choice, reached: float) -> None:
        """The compiled model reached this."""
        self.margins[budget] = reached - self.predict(budget, choice)

    def expect(self, budget: Budget, choice: costs.Choice) -> float:
        return self.predict(budget, choice) + self.margins[budget]

    def choose(self) -> costs.Choice:
        """Raises: UserError: no choice is expected to hold; it says what the best one reaches."""
        for power in range(PRICES):
            choice = self._cheapest() if self.figures else self._within()
            broken = [b for b in self.limited if not self._expected(b, choice)]
            if not broken:
                return choice
            for name in {b.name for b in broken}:
                self.priced = costs.dearer(self.priced, self.resources[name], 4.0**power)
            self.path = costs.frontier(self.priced)
        raise self._failure(broken[0], choice)

    def _cheapest(self) -> costs.Choice:
        holds = self._keeping(self.figures)
        index = costs.cheapest(self.path, holds)
        if index is None:
            failing = next(b for b in self.figures if not self._expected(b, self.path[0]))
            raise self._failure(failing, self.path[0])
        return further(self.priced, self.path[index], holds)

    def _within(self) -> costs.Choice:
        return costs.within(self.priced, self._keeping(self.limited)) or self.path[-1]

    def _keeping(self, budgets: Sequence[Budget]) -> costs.Holds:
        return lambda choice: all(self._expected(b, choice) for b in budgets)

    def meets(self, budget: Budget, value: float) -> bool:
        """True if what was reached keeps to a budget (a resource: as a share)."""
        resource = self.resources[budget.name] if budget.is_resource else None
        return budget.holds(value, resource.share(budget) if resource else budget.limit)

    def _expected(self, budget: Budget, choice: costs.Choice) -> bool:
        return self.meets(budget, self.expect(budget, choice))

    def _failure(self, budget: Budget, best: costs.Choice) -> UserError:
        value = self.expect(budget, best)
        others = [f"{name} {r.of(best):.4g}" for name, r in self.resources.items()]
        others += [f"{b.name} {self.expect(b, best):.6g}" for b in self.figures if b is not budget]
        formats = ", ".join(f"{n} {name}" for name, n in self.formats(best).items())
        return UserError(
            f"budget {budget} cannot be met; the best reached is {value:.6g}"
            f" ({'; '.join([*others, formats])})",
            hint="change the budget, or give other --candidates",
        )


def further(
    groups: Sequence[costs.Points], choice: costs.Choice, holds: costs.Holds, tries: int = TRIES
) -> costs.Choice:
    """`choice` with single groups made cheaper, those with the best price first, while it holds."""
    refused: set[tuple[int, int]] = set()
    for _ in range(tries):
        steps = []
        for g, points in enumerate(groups):
            path = costs.hull(points)
            if choice[g] in path[:-1]:
                after = path[path.index(choice[g]) + 1]
                if (g, after) not in refused:
                    steps.append((costs.price(points, choice[g], after), g, after))
        if not steps:
            break
        _, g, after = min(steps)
        changed = (*choice[:g], after, *choice[g + 1 :])
        if holds(changed):
            choice = changed
        else:
            refused.add((g, after))
    return choice
