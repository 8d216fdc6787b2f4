"""Result of a search: the choice, the way to it, and the pipeline file that makes it."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from jq.base.progress import Stages
from jq.base.tables import Shown, plain_table
from jq.driver.comparison.result import Comparison
from jq.driver.compiled import CompiledModel
from jq.mixed_precision.choose import BudgetChooser
from jq.mixed_precision.costs import Choice, decibels, total
from jq.mixed_precision.problem import MixedPipeline
from jq.mixed_precision.proof import Proof
from jq.target.rules import Rule


@dataclass(frozen=True)
class Point:
    """A choice on the frontier. `predicted_sqnr_db` is the SQNR if errors added up, `reached` has
    the figures of the budgets, None where it was not run, `formats` the number of groups by
    candidate."""

    cost: float
    resources: Mapping[str, float]
    predicted_sqnr_db: float
    reached: Mapping[str, float] | None
    formats: Mapping[str, int]
    chosen: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Its fields; each resource is one."""
        fields = dict(vars(self))
        return {**fields.pop("resources"), **fields}


@dataclass(frozen=True)
class LayerChoice:
    """The choice for a group of ops. `options`: candidate -> `sqnr_db` at the model's outputs when
    this group alone takes it, and what it takes of each resource."""

    name: str
    ops: tuple[str, ...]
    choice: str
    options: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, repr=False)
class SearchResult(Shown):
    """Attributes:
    budgets: as they were given.
    reached: their figures, of the compiled model.
    resources: size, work and latency of the choice, as far as they were asked for.
    frontier: the choices that were run, from the most exact to the cheapest.
    layers: the choice for each group of ops.
    file: the pipeline that makes this choice.
    comparison: of the compiled model against float."""

    budgets: tuple[str, ...]
    reached: Mapping[str, float]
    resources: Mapping[str, float]
    frontier: tuple[Point, ...]
    layers: tuple[LayerChoice, ...]
    file: MixedPipeline
    comparison: Comparison
    compiled: CompiledModel
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that turn the base pipeline into the choice."""
        return self.file.rules

    @property
    def formats(self) -> dict[str, int]:
        """Number of groups of ops that have each candidate."""
        return dict(Counter(layer.choice for layer in self.layers))

    def save(self, path: str | Path) -> Path:
        """Writes the pipeline file."""
        return self.file.save(Path(path))

    def to_dict(self) -> dict[str, Any]:
        """The document of `jaxq search --json`."""
        return {
            "budgets": list(self.budgets),
            "reached": dict(self.reached),
            **self.resources,
            "formats": self.formats,
            "frontier": [p.to_dict() for p in self.frontier],
            "layers": [vars(layer) for layer in self.layers],
            "rules": [rule.model_dump() for rule in self.rules],
            "comparison": self.comparison.to_dict(),
            "seconds": dict(self.seconds),
        }

    def table(self) -> Table:
        """One row a choice; figures that were not measured are left empty."""
        resources = list(dict.fromkeys(name for p in self.frontier for name in p.resources))
        reached = list(dict.fromkeys(name for p in self.frontier for name in p.reached or ()))
        columns = ("", *resources, "predicted SQNR dB", *reached, "formats")
        table = plain_table(*columns, title="From exact to cheap")
        for p in self.frontier:
            table.add_row(
                "*" if p.chosen else "",
                *(f"{p.resources[name]:.4g}" for name in resources),
                "exact" if math.isinf(p.predicted_sqnr_db) else f"{p.predicted_sqnr_db:.2f}",
                *("" if p.reached is None else f"{p.reached[name]:.6g}" for name in reached),
                ", ".join(f"{count} {name}" for name, count in p.formats.items()),
                style="bold" if p.chosen else None,
            )
        return table


# The result of a search, from the choice that was made and those beside it.
SHOWN = 6  # steps of the frontier, besides the choices that were run


def result(
    chooser: BudgetChooser, choice: Choice, file: MixedPipeline, proof: Proof, stages: Stages
) -> SearchResult:
    resources = {name: r.of(choice) for name, r in chooser.resources.items()} | proof.resources
    figures = {b.name: b.value(proof.comparison) for b in chooser.figures}
    path = chooser.path
    evenly = {path[round(i * (len(path) - 1) / SHOWN)] for i in range(SHOWN + 1)}
    shown = {*evenly, *(set(path) & chooser.judge.known.keys()), choice}
    points = sorted((_point(chooser, c, c == choice) for c in shown), key=lambda p: -p.cost)
    return SearchResult(
        budgets=tuple(map(str, chooser.margins)),
        reached=figures | {b.name: resources[b.name] for b in chooser.limited},
        resources=resources,
        frontier=tuple(points),
        layers=tuple(_layers(chooser, choice)),
        file=file,
        comparison=proof.comparison,
        compiled=proof.compiled,
        seconds=stages.seconds,
    )


def _point(chooser: BudgetChooser, choice: Choice, chosen: bool) -> Point:
    cost, error = total(chooser.points, choice)
    known = chooser.judge.known.get(choice)
    return Point(
        cost=cost,
        resources={name: r.of(choice) for name, r in chooser.resources.items()},
        predicted_sqnr_db=decibels(error),
        reached=None if known is None else {b.name: b.value(known) for b in chooser.figures},
        formats=chooser.formats(choice),
        chosen=chosen,
    )


def _layers(chooser: BudgetChooser, choice: Choice) -> list[LayerChoice]:
    rows = []
    for g, (group, taken) in enumerate(zip(chooser.groups, choice, strict=True)):
        options = {
            option.name: {
                "sqnr_db": decibels(chooser.points[g][i][1]),
                **{name: r.options[g][i] for name, r in chooser.resources.items()},
            }
            for i, option in enumerate(group.options)
        }
        rows.append(LayerChoice(group.name, group.ops, group.options[taken].name, options))
    return rows
