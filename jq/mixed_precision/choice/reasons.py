"""A choice in words: rules that say why they are there, and one sentence for all."""

import glob
import math
from collections import Counter

from jq.mixed_precision.choice.candidates import Candidate
from jq.mixed_precision.choice.frontier import Choice
from jq.mixed_precision.choice.problem import Problem
from jq.mixed_precision.choice.rules import check_rules, rules_of
from jq.mixed_precision.choice.worth import FLOOR, Chooser
from jq.target.rules import Rule


def rules_with_reasons(problem: Problem, chooser: Chooser, choice: Choice) -> list[Rule]:
    """The rules that make a choice out of the base pipeline."""
    job, groups = problem.job, problem.groups
    rules = rules_of(job, groups, choice)
    check_rules(job, groups, choice, rules)
    why = {
        glob.escape(op): _reason(chooser, g, o)
        for g, o in enumerate(choice)
        for op in groups[g].ops
    }
    return [rule.model_copy(update={"reason": why.get(rule.pattern, "")}) for rule in rules]


def _reason(chooser: Chooser, g: int, o: int) -> str:
    group, base = chooser.groups[g], _base(chooser)
    old, whole = group.number(base), chooser.uniform(base)
    name = group.options[o].name
    if old is None or whole is None or old == o:
        return ""
    before, after = (_decibels(chooser.error(g, number)) for number in (old, o))
    more = (chooser.cycles[g][o] - chooser.cycles[g][old]) / chooser.time(whole)
    return f"chosen {name}: noise {after}, not {before}, for {more:+.2%} of the time"


def _base(chooser: Chooser) -> Candidate:
    """The candidate that is as the base pipeline, else the first."""
    every = list(chooser.problem.plans)
    return next((c for c in every if not c.overrides), every[0])


def _decibels(error: float) -> str:
    return f"{10 * math.log10(error):.1f} dB" if error > 0 else "none"


def summary(chooser: Chooser, choice: Choice) -> str:
    """Number of ops of each format, and what that is worth beside the base pipeline."""
    pairs = list(zip(chooser.groups, choice, strict=True))
    counts = Counter(group.options[o].name for group, o in pairs for _ in group.ops)
    named = ", ".join(f"{n} {name}" for name, n in counts.most_common())
    base = _base(chooser)
    old, error = chooser.uniform(base), chooser.whole(choice)
    if old is None:
        return f"{named}; noise {_decibels(error)}{_warning(chooser, choice, error)}"
    before, time = chooser.whole(old), chooser.time(choice) / chooser.time(old)
    return (
        f"{named}; estimated noise {_decibels(error)} and {time:.2f} of the time of {base.name}"
        f" (noise {_decibels(before)}){_warning(chooser, choice, error)}"
    )


def _warning(chooser: Chooser, choice: Choice, error: float) -> str:
    """Warns of the op that makes most of an error above the floor, and says what would help."""
    if error <= FLOOR:
        return ""
    worst = max(range(len(choice)), key=lambda g: chooser.error(g, choice[g]))
    op, name = chooser.groups[worst].ops[0], chooser.groups[worst].options[choice[worst]].name
    return (
        f"; warning: that is far from the float model, and {op} in {name} makes most of it:"
        f" allow it more bits, as by the rule '{glob.escape(op)}: float'"
    )
