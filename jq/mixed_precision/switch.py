"""One program that computes every choice: what an op reads goes through the codes asked for.

    %y = dot_general %x, %w
    ->
    %q = %x through the codes of an option
    %s = select %flag, %q, %x        // %flag: a weight of type i1
    %y = dot_general %s, %w          // %w is bound to what the option's stored weight decodes to

So all choices take one compilation, and changing a choice means giving other weights."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jq.artifact.jobs import Result, Work
from jq.driver.comparison.outputs import Outputs
from jq.driver.comparison.result import ErrorSum, is_integer
from jq.formats import get_format
from jq.ir import OPS, Op, Program, at, dtype_of, ir, stablehlo
from jq.ir.ops.base import Contraction
from jq.ir.oracle.xla import XlaExecutable
from jq.mixed_precision.costs import Choice
from jq.mixed_precision.groups import Group, Option
from jq.passes.base import PassContext
from jq.passes.pipeline import Pipeline
from jq.passes.qdq.place_activations import PlaceEdges, through_codes
from jq.planning.decisions import TensorPlan
from jq.planning.operands import contractions, op_name


@dataclass(frozen=True)
class Reading:
    """An op's reading of an operand: through a plan's codes; or all, rounded to a float type."""

    op: str
    index: int | None
    plan: TensorPlan | None
    float_type: str = ""


class SwitchProgram:
    """The model under any choice; all groups float at first."""

    def __init__(
        self, program: Program, pipeline: Pipeline, cx: PassContext, groups: Sequence[Group]
    ):
        """`program`: prepared, float; `cx`: of a plan, for the edges between its regions."""
        self.groups = list(groups)
        self._float = program.weights
        copy = program.clone()
        self._flags: dict[Reading, str] = {}
        ops = {op_name(op): (op, rule) for op, rule in contractions(copy)}
        for reading in (r for g in self.groups for option in g.options for r in readings(option)):
            if reading not in self._flags:
                name = self._flags[reading] = f"switch/{len(self._flags)}"
                _switch(copy, *ops[reading.op], reading, name)
        if any(p.name == PlaceEdges.name for p in pipeline.passes["qdq"]):
            PlaceEdges().run(copy, cx)
        self._program = copy
        self._state: Sequence[int | None] = [None] * len(self.groups)

    def __getstate__(self) -> dict[str, Any]:
        """The pickled state: a worker compiles the program itself."""
        state = {k: v for k, v in self.__dict__.items() if k != "_run"}
        return state | {"_state": [None] * len(self.groups)}

    @cached_property
    def _run(self) -> XlaExecutable:
        return XlaExecutable(self._program)

    def run(
        self, choice: Sequence[int | None] | None, calls: Iterable[Sequence[np.ndarray]]
    ) -> list[Outputs]:
        """The outputs of some calls, where each group takes the option of this number; None leaves
        it float, or all."""
        wanted = choice or [None] * len(self.groups)
        for group, *pair in zip(self.groups, self._state, wanted, strict=True):
            if pair[0] == pair[1]:
                continue
            old, new = (None if number is None else group.options[number] for number in pair)
            self._run.bind({name: self._weight(name, new) for name in group.weights})
            before, after = ({*readings(o)} & {*self._flags} if o else set() for o in (old, new))
            flags = dict.fromkeys(before - after, False) | dict.fromkeys(after - before, True)
            self._run.bind({self._flags[r]: np.array(on) for r, on in flags.items()})
        self._state = wanted
        return [self._run(*inputs) for inputs in calls]

    def _weight(self, name: str, option: Option | None) -> np.ndarray:
        weight = self._float[name]
        if option is None or name not in option.stored:
            return weight
        stored = option.stored[name]
        decoded = get_format(stored.encoding.format).to_numpy(stored.parts, stored.encoding)
        return np.asarray(decoded).astype(weight.dtype)


def readings(option: Option) -> list[Reading]:
    """The readings of an option's ops: their operands that are no weights."""
    found = []
    for plan in option.plans:
        for index, p in plan.operands.items():
            if p.kind in ("dynamic", "static"):
                found.append(Reading(plan.name, index, p))
        if plan.float_type:
            found.append(Reading(plan.name, None, None, plan.float_type))
    return found


def _switch(program: Program, op: Op, rule: Contraction, reading: Reading, name: str) -> None:
    """Puts a switch with the flag `name` in front of an operand (or all of them)."""
    flag = program.add_weight(name, np.array(False))
    for index in [r.index for r in rule.roles(op)] if reading.index is None else [reading.index]:
        value: ir.Value = op.operands[index]
        if reading.plan is not None:
            other = through_codes(program, op, value, reading.plan, f"{reading.op}:{index}")
        with at(op):
            if reading.plan is None:
                rounded = OPS.convert(value, np.dtype(reading.float_type))
                other = OPS.convert(rounded, dtype_of(value))
            op.operands[index] = stablehlo.select(flag, other, value)


# Sensitivity of a model to choices: the error of one group alone, or of all together.
@dataclass(frozen=True)
class Alone:
    """One group takes an option, all others stay float. The result: `noise`."""

    group: int
    option: int


@dataclass(frozen=True)
class Together:
    """All groups take an option (None: stay float). The result: `CALL:OUTPUT` of these calls."""

    choice: Choice | None
    calls: Sequence[Outputs]


@dataclass(frozen=True)
class Choices(Work):
    """One work for both kinds of jobs: a worker compiles the program of all choices once; `calls`
    are those that errors of one group alone are measured on."""

    switch: SwitchProgram
    calls: Sequence[Outputs]

    def open(self) -> Callable[[Alone | Together], Result]:
        references: list[Outputs] = []

        def done(item: Alone | Together) -> Result:
            if isinstance(item, Together):
                each = enumerate(self.switch.run(item.choice, item.calls))
                return {f"{c}:{i}": a for c, arrays in each for i, a in enumerate(arrays)}
            if not references:
                references.extend(self.switch.run(None, self.calls))
            every = range(len(self.switch.groups))
            options = [None if g != item.group else item.option for g in every]
            found = noise(references, self.switch.run(options, self.calls))
            return {"noise": np.array(found, np.float64)}

        return done


def noise(reference: Sequence[Outputs], quantized: Sequence[Outputs]) -> float:
    """Noise power over signal power, summed over the float outputs; of a program without any, the
    share of elements that differ."""
    return float(shares(reference, quantized).sum())


def shares(reference: Sequence[Outputs], quantized: Sequence[Outputs]) -> np.ndarray:
    """The parts of `noise`, f64[calls], that calls add to it."""
    found = []
    for r, q in zip(zip(*reference, strict=True), zip(*quantized, strict=True), strict=True):
        if is_integer(r[0]):
            continue
        sums = [ErrorSum() for _ in r]
        for total, *pair in zip(sums, r, q, strict=True):
            total.add(*pair)
        own, signal = np.array([s.noise for s in sums]), sum(s.signal for s in sums)
        broken = any(s.nonfinite for s in sums) or (own.any() and not signal)
        found.append(np.full_like(own, np.inf) if broken else own / (signal or 1.0))
    if found:
        return np.sum(found, axis=0)
    calls = (zip(*outputs, strict=True) for outputs in zip(reference, quantized, strict=True))
    differ = [np.mean([np.mean(r != q) for r, q in pairs]) for pairs in calls]
    return np.array(differ) / len(differ)
