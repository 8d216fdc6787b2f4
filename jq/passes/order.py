"""The order of the whole compiler: every pass, why it stands where it stands, and when it runs.

A pipeline file holds settings and rules; which of these passes run follows from the settings alone.
`float` passes run before calibration and planning, `qdq` passes carry out the plan, `integer`
passes turn what is between quantize and dequantize into integer arithmetic, `target` passes put
kernels in its place, and the last ones rewrite what IREE's compiler gets wrong.

`order.txt` lists them: the name, options, when it runs (`CONDITIONS`), and why it stands where it
stands. The names of mends that have no reason but their defects stand together. After
`lower-markers` comes what the compiler needs, whatever the settings."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, Literal

from jq.base.errors import InternalError
from jq.ir.ops.lookup import contraction
from jq.passes.base import Pass, known_passes, make_pass
from jq.passes.iree_mends.mend import Mend
from jq.target.settings import FLOAT, Settings

Level = Literal["float", "qdq", "integer", "target"]
LEVELS: tuple[Level, ...] = ("float", "qdq", "integer", "target")


@dataclass(frozen=True)
class When:
    """A condition on the settings, and how it is said in words."""

    text: str
    holds: Callable[[Settings], bool]

    def __and__(self, other: "When") -> "When":
        return When(f"{self.text}, and {other.text}", lambda s: self.holds(s) and other.holds(s))


ALWAYS = When("always", lambda s: True)
CONDITIONS = {
    "static": When("activations have calibrated ranges", lambda s: s.activations.calibrated),
    "early": When("placement=early", lambda s: s.placement == "early"),
    "later": When("placement is hybrid or late", lambda s: s.placement != "early"),
    "stored-sums": When("convolution_sums=codes", lambda s: s.convolution_sums == "codes"),
    "maps": When(
        "op_types has an op that makes feature maps (convolution)",
        lambda s: any((rule := contraction(op)) and rule.feature_map for op in s.op_types),
    ),
    "blocks": When(
        "activations are quantized in blocks (granularity=per-block)",
        lambda s: s.activations.format != FLOAT and s.activations.granularity == "per-block",
    ),
    "integer-only": When("integer_only=true", lambda s: s.integer_only),
    "floats": When("integer_only=false", lambda s: not s.integer_only),
}


@dataclass(frozen=True)
class Step:
    """One pass in the order: its name, why it is here, when it runs, and its options.

    A mend is there because of its defects; `why` says what else decides its place."""

    name: str
    why: str = ""
    when: When = ALWAYS
    options: dict[str, Any] = field(default_factory=dict)

    def make(self) -> Pass:
        return make_pass(self.name, self.options)

    def reason(self) -> str:
        """The reason for the pass, and its place."""
        kind = known_passes()[self.name]
        told = [kind.defects()[0].what] if issubclass(kind, Mend) else []
        return "; ".join([*told, *filter(None, [self.why])])


# Recovery passes that are gone, since others do better, and what to use.
REMOVED = {
    "adaround": "use gptq, which is closer and takes less time",
    "awq": "use gptq, which is closer, and whose worst case was made worse by awq",
    "tune": "--minutes N (minutes=N) trains scales on the program's output, and more than these",
}


def _read(table: str) -> dict[Level, tuple[Step, ...]]:
    order: dict[Level, tuple[Step, ...]] = {}
    for part in re.split(r"^# ", table, flags=re.MULTILINE)[1:]:
        level, *lines = re.sub(r"\n +", " ", part).split("\n")
        order[LEVELS[LEVELS.index(level)]] = tuple(step for line in lines for step in _steps(line))
    return order


def _steps(line: str) -> Iterator[Step]:
    told = re.fullmatch(r"([\w-]+)((?: \w+=true)*)(?: \[(.*?)\])?: (.*)", line)
    if told is None:
        yield from map(Step, line.split())
        return
    name, options, when, why = told.groups("")
    conditions = [CONDITIONS[word] for word in when.split()]
    given = dict.fromkeys(re.findall(r"(\w+)=", options), True)
    yield Step(name, why, reduce(When.__and__, conditions) if conditions else ALWAYS, given)


ORDER = _read(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))


def steps() -> dict[Level, tuple[Step, ...]]:
    """The order, with passes from outside this package where they say that they belong."""
    found = {level: list(ORDER[level]) for level in LEVELS}
    for kind in known_passes().values():
        if (place := kind.after) is None:
            continue
        for level in LEVELS:
            names = [step.name for step in found[level]]
            if place in names:
                found[level].insert(names.index(place) + 1, Step(kind.name, kind.__doc__ or ""))
                break
        else:
            raise InternalError(f"pass {kind.name} wants to run after {place!r}, which is no pass")
    return {level: tuple(each) for level, each in found.items()}


def passes_for(settings: Settings) -> dict[Level, tuple[Pass, ...]]:
    """The passes that run under these settings, level by level."""
    return {
        level: tuple(step.make() for step in each if step.when.holds(settings))
        for level, each in steps().items()
    }
