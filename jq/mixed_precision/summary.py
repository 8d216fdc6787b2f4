"""The result of a search, from the choice that was made and those beside it."""

import math

from jq.base.progress import Stages
from jq.mixed_precision.choice.frontier import Choice, total
from jq.mixed_precision.choice.rules import MixedPipeline
from jq.mixed_precision.choose import Chooser
from jq.mixed_precision.prove import Proof
from jq.mixed_precision.result import LayerChoice, Point, SearchResult

SHOWN = 6  # steps of the frontier, besides the choices that were run


def result(
    chooser: Chooser, choice: Choice, file: MixedPipeline, proof: Proof, stages: Stages
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


def _point(chooser: Chooser, choice: Choice, chosen: bool) -> Point:
    cost, error = total(chooser.points, choice)
    known = chooser.judge.known.get(choice)
    return Point(
        cost=cost,
        resources={name: r.of(choice) for name, r in chooser.resources.items()},
        predicted_db=decibels(error),
        reached=None if known is None else {b.name: b.value(known) for b in chooser.figures},
        formats=chooser.formats(choice),
        chosen=chosen,
    )


def _layers(chooser: Chooser, choice: Choice) -> list[LayerChoice]:
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


def decibels(error: float) -> float:
    """SQNR of an error that is noise power over signal power."""
    return -10 * math.log10(error) if error > 0 else math.inf
