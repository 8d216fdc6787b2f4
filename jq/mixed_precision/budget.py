"""Budgets: what a choice of formats must reach, or may cost.

`NAME>=VALUE` or `NAME<=VALUE`. A figure of the comparison (`sqnr_db`, `cosine`, `accuracy`, any
that a user's metric gives), its drop against float (`accuracy_drop`, shares in points of a
hundred), or a resource:
    size     stored bytes of the weights, over those of the float model
    work     bit operations of all products, over those of the float model
    latency  milliseconds a call, with a unit (`5ms`); without one, over the float program"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from jq.base.errors import UserError, known
from jq.driver.comparison.metrics import ALIASES, ERRORS, NAMES, Metric
from jq.driver.comparison.outputs import worst
from jq.driver.comparison.result import Comparison
from jq.ir.oracle.xla import XlaExecutable
from jq.reporting.measuring.evaluation import Evaluation, several

RESOURCES = ("size", "work", "latency")
_POINTS = {"accuracy", "top1_agreement", "retrieval_agreement", "match"}  # shares, in hundredths
_LARGER_IS_BETTER = {"sqnr_db", "cosine", "cosine_min"} | _POINTS
_PATTERN = re.compile(r"\s*(.+?)\s*(>=|<=)\s*([-+.\deE]+)\s*(ms|dB)?\s*")


@dataclass(frozen=True)
class Budget:
    """One condition. `function` is the `file.py:name` that gives the figure, when there is one."""

    name: str
    at_least: bool
    limit: float
    unit: str = ""
    function: str = ""

    def __str__(self) -> str:
        return f"{self.name}{'>=' if self.at_least else '<='}{self.limit:g}{self.unit}"

    @property
    def is_resource(self) -> bool:
        return self.name in RESOURCES

    @property
    def figure(self) -> str:
        """Name of the figure that is looked at: without `_drop`."""
        return self.name.removesuffix("_drop")

    def holds(self, value: float, limit: float | None = None) -> bool:
        """True if a value keeps to the limit (or to another one); NaN never does."""
        limit = self.limit if limit is None else limit
        return value >= limit if self.at_least else value <= limit

    def value(self, comparison: Comparison) -> float:
        """The figure that a comparison reached; `UserError` where it has no such figure."""
        both = figures(comparison).get(self.figure)
        if both is None:
            hint = known(self.figure, (*figures(comparison), *RESOURCES))
            raise UserError(f"no figure {self.figure!r} to hold a budget", hint=hint)
        if self.name == self.figure:
            return both["quantized"]
        drop = both["float"] - both["quantized"]
        return 100 * drop if self.figure in _POINTS else drop


def figures(comparison: Comparison) -> dict[str, dict[str, float]]:
    """All figures by name: the errors of the worst output, and the metrics."""
    errors = worst(comparison.outputs)
    both = {name: {"float": ERRORS[name], "quantized": value} for name, value in errors.items()}
    return both | {name: dict(values) for name, values in comparison.metrics.items()}


def parse_budget(text: str) -> Budget:
    """`"sqnr_db>=35"`, `"accuracy_drop<=0.5"`, `"size<=0.3"`, `"my.py:metric>=0.9"`."""
    found = _PATTERN.fullmatch(text) if isinstance(text, str) else None
    try:
        limit = float(found[3]) if found else math.nan
    except ValueError:
        limit = math.nan
    if found is None or not math.isfinite(limit):
        raise UserError(f"cannot read budget {text!r}", hint="write NAME>=VALUE or NAME<=VALUE")
    name, at_least, unit = found[1], found[2] == ">=", found[4] or ""
    function = name if ":" in name else ""
    name = ALIASES.get(name, name.rpartition(":")[2])
    budget = Budget(name, at_least, limit, unit, function)
    _check_direction(budget)
    if unit and name != {"ms": "latency", "dB": "sqnr_db"}[unit]:
        raise UserError(f"{name} has no unit {unit}")
    return budget


def check_figures(budgets: Sequence[Budget], metric: Metric | Sequence[Metric] | None) -> list[str]:
    """The built-in figures to measure, none where a function may give them; refuses all others."""
    if any(callable(m) or ":" in m for m in several(metric)):
        return []
    asked = [b.figure for b in budgets if not (b.is_resource or b.function)]
    for name in asked:
        if name not in NAMES:
            hint = known(name, (*NAMES, *RESOURCES))
            raise UserError(f"no figure {name!r} to hold a budget", hint=hint)
    return asked


def check_reached(budgets: Sequence[Budget], evaluation: Evaluation) -> None:
    """Refuses a figure that the functions asked for do not give, and one that is NaN: what they
    call their figures is seen on the float model's outputs, before anything is quantized."""
    built_in = {*NAMES, *RESOURCES} - {"match"}  # which a model without integers does not have
    asked = [b for b in budgets if b.figure not in built_in]
    if not asked:
        return
    run = XlaExecutable(evaluation.source.program)
    outputs = [run(*arrays) for arrays in evaluation.calls]
    found = evaluation.compare(outputs, outputs)
    for budget in asked:
        if math.isnan(budget.value(found)):
            hint = "match is of integer outputs" if budget.figure == "match" else None
            raise UserError(f"budget {budget} has no number: the float model's is NaN", hint=hint)


def _check_direction(budget: Budget) -> None:
    """Refuses a bound on the wrong side of a quantity whose good side is known."""
    smaller = budget.is_resource or budget.name == "max_abs_error"
    smaller |= budget.name.endswith("_drop") and budget.figure in _LARGER_IS_BETTER
    if (smaller and budget.at_least) or (budget.name in _LARGER_IS_BETTER and not budget.at_least):
        hint = f"write {budget.name}{'<=' if smaller else '>='}{budget.limit:g}"
        raise UserError(f"budget {budget} bounds the wrong side", hint=hint)
    if budget.name in _LARGER_IS_BETTER - {"sqnr_db"} and budget.limit > 1 and not budget.function:
        raise UserError(f"budget {budget} cannot be met: no {budget.name} is above 1")
    if (budget.is_resource or budget.name == "max_abs_error") and budget.limit < 0:
        raise UserError(f"budget {budget} cannot be met: no {budget.name} is below 0")
