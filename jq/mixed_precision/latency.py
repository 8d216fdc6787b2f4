"""Latency of each option, measured: its op alone, compiled as the pipeline would, on this machine.

The latency of a choice is that of the float program, plus what each op saves or costs. What
fusion changes is not seen; the compiled choice is measured in the end.
"""

import glob
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jq.artifact.keys import digest
from jq.base.deep import Steps, deep, every
from jq.base.progress import Progress, Stages
from jq.base.system.processor import this_processor
from jq.device.assumed import planned_job
from jq.device.estimating import estimated
from jq.driver.compiled import CompiledModel
from jq.driver.job import Job
from jq.driver.stages import build, plan_job
from jq.frontends.source import Source
from jq.ir import Op, Program, TensorSpec, dtype_of, editing, func, ir, shape_of
from jq.ir.ops import Movement, rule_of
from jq.ir.values import last_of, maker
from jq.mixed_precision.costs import Resource
from jq.mixed_precision.evaluate import State
from jq.mixed_precision.groups import Group, trips
from jq.mixed_precision.problem import Problem, with_rules
from jq.planning.operands import contractions, op_name
from jq.reporting.benchmark import random_inputs
from jq.target.rules import Rule
from jq.target.settings import FLOAT


# Latency of each option on a device that is not at hand, by `jq.estimate`.
#
# Every candidate is planned for the whole model once, and what its ops take is read from the rows
# of that estimate; everything else is fixed. Shares are of what the base pipeline takes, for the
# device may have no floats.
def estimated_latency(problem: Problem) -> Resource:
    """The share of each option in the milliseconds that the model takes with the base pipeline;
    `UserError` where a candidate needs products whose rate the target does not state."""
    job, groups = problem.job, problem.groups
    whole, base = milliseconds(job)
    rules = {o.candidate.name: o.candidate.rule for group in groups for o in group.options}
    found = {
        name: milliseconds(with_rules(job, [Rule(pattern="*", override=rule)]))[1]
        for name, rule in rules.items()
    }
    options = [
        [sum(found[o.candidate.name][op] for op in group.ops) / whole for o in group.options]
        for group in groups
    ]
    ours = sum(base[op] for group in groups for op in group.ops)
    return Resource("latency", options, (whole - ours) / whole, whole)


def milliseconds(job: Job) -> tuple[float, Counter[str]]:
    """The time of the model as a job plans it, and those of its layers by the name of their op."""
    prepared = replace(job.prepared, recover=False)  # the same ops, with other codes
    document, layers = estimated(planned_job(replace(job, prepared=prepared))), Counter[str]()
    ms = document["total_ms"] / (document["total_cycles"] or 1)
    for row in document["layers"]:
        layers[row["name"].partition("#")[0]] += row["cycles"] * ms
    return document["total_ms"], layers


# One op of a program as a program of its own, to be measured alone.
#
# What leads from a weight to the op comes along; everything else that the op reads is an input.
def single(program: Program, op: Op) -> Program:
    """The program of one op, with the weights of `program` that it reads."""
    operands = list(op.operands)
    inputs = list(dict.fromkeys(v for x in operands for v in _inputs(program, x)))
    specs = tuple(
        TensorSpec(f"arg{i}", shape_of(v), dtype_of(v).name) for i, v in enumerate(inputs)
    )
    result = op.results[0]
    output = TensorSpec("out0", shape_of(result), dtype_of(result).name)
    with editing():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            main = func.FuncOp("main", ([v.type for v in inputs], []))
        block = main.add_entry_block()
        with ir.InsertionPoint(block):
            func.ReturnOp([])
    made = Program(module, {}, specs, (output,))
    copies = _Copies(program, made, dict(zip(inputs, block.arguments, strict=True)))
    values = [copies.of(value) for value in operands]
    made.return_values([_clone(made, op, values).results[0]])
    made.verify()
    return made


@deep
def _inputs(program: Program, value: ir.Value) -> Steps[list[ir.Value]]:
    """The values that an operand needs from outside."""
    op, found = _movement(program, value), list[ir.Value]()
    if op is not None:
        for operand in op.operands:
            found += yield program, operand
    elif program.weight_name(value) is None:
        found.append(value)
    return found


def _movement(program: Program, value: ir.Value) -> Any:
    """The op that moves a weight to `value`; None for a weight itself and for anything else."""
    start, first = value, None
    while program.weight_name(value) is None:
        op = maker(value)
        if op is None or not isinstance(rule_of(op), Movement):
            return None
        first = first or op
        value = op.operands[0]
    return None if value == start else first


@dataclass(eq=False)
class _Copies:
    """Values of `program` in `made`."""

    program: Program
    made: Program
    known: dict[ir.Value, ir.Value]

    @deep
    def of(self, value: ir.Value) -> Steps[ir.Value]:
        if value not in self.known:
            name, op = self.program.weight_name(value), _movement(self.program, value)
            if name is not None:
                self.known[value] = self.made.add_weight(name, self.program.weights[name])
            else:
                operands = yield from every((self, v) for v in op.operands)
                self.known[value] = _clone(self.made, op, operands or []).results[0]
        return self.known[value]


def _clone(made: Program, op: Op, operands: list[ir.Value]) -> ir.Operation:
    last = last_of(made.body)
    with editing(), ir.InsertionPoint(last):
        copy: ir.Operation = op.operation.clone()
    for i, value in enumerate(operands):
        copy.operands[i] = value
    return copy


SECONDS, LEAST = 0.2, 10  # measuring time of a program, and calls at least
AS_FLOAT = {"format": FLOAT}


def latency_of(problem: Problem, state: State, progress: Progress) -> Resource:
    """The share of each option in the milliseconds of the model with all groups in float."""
    watch = _Watch(problem, state)
    progress("latency of the model", None)
    whole = watch.model()
    options, saved = [], 0.0
    for i, group in enumerate(problem.groups):
        progress("latency of layers", i / len(problem.groups))
        saved += watch.ops(group, AS_FLOAT)
        own = [watch.ops(group, option.candidate.rule) for option in group.options]
        options.append([ms / whole for ms in own])
    return Resource("latency", options, (whole - saved) / whole, whole)


class _Watch:
    """Measures ops and the model, each once; equal ops are one."""

    def __init__(self, problem: Problem, state: State) -> None:
        self.problem, self.job, self.state = problem, problem.job, state
        self._ops = {op_name(op): op for op, _ in contractions(self.job.program)}

    def model(self) -> float:
        names = [name for group in self.problem.groups for name in group.ops]
        rules = [Rule(pattern=glob.escape(name), override=AS_FLOAT) for name in names]
        return self._measured(self.job, rules, f"model {digest(names)}")

    def ops(self, group: Group, overrides: dict[str, Any]) -> float:
        """Milliseconds that a group takes in one call of the model."""
        total = 0.0
        for name in group.ops:
            program = single(self.job.program, self._ops[name])
            job = replace(
                self.job,
                source=Source(program),
                program=program,
                data=None,
                prepared=replace(self.job.prepared, recover=False),
            )
            key = digest(program.text().replace(name, ""), overrides)
            rules = [Rule(pattern="*", override=overrides)]
            total += trips(self.job.program, self._ops[name]) * self._measured(job, rules, key)
        return total

    def _measured(self, job: Job, rules: list[Rule], key: str) -> float:
        key = f"latency {this_processor().model} {key}"
        known = self.state.values.get(key)
        if known is None:
            changed = with_rules(job, rules)
            known = median_ms(build(changed, plan_job(changed, Stages()), Stages()))
            self.state.put(key, known)
        return known


def median_ms(compiled: CompiledModel) -> float:
    """Median milliseconds of a call on one thread, with random inputs."""
    inputs = random_inputs(compiled.inputs)
    times: list[float] = []
    compiled.call_flat(inputs)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < LEAST:
        start = time.perf_counter()
        compiled.call_flat(inputs)
        times.append(1e3 * (time.perf_counter() - start))
    return float(np.median(times))
