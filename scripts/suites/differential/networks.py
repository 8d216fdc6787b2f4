"""Outcomes of drawn networks: op by op, and as a whole through IREE.

The interpreter runs the integer level and its values are kept. Every op is then given its operands
of that run, by XLA and by NumPy: integers must be equal bit by bit, floats as `suites.close` has it
(32 steps of the last place; of the largest where many numbers are added). So no difference in
softmax's last bits comes to another op. The whole program through IREE ends within that of the
interpreter, or else within `SHARE` of the noise that quantizing adds: a code that turned.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax
import numpy as np

import jq
from jq.base.errors import UserError
from jq.ir import Op, Program, at, dtype_of, ir
from jq.ir.oracle.interpreter import interpret
from jq.ir.oracle.xla import XlaExecutable
from suites.close import difference
from suites.differential.architectures import Network, network
from suites.differential.numpy_values import steps_by_op, value
from suites.outcome import DID_NOT_RUN, FAILED, REFUSED, RIGHT, WRONG, Outcome

# Attention in pairs of bfloat16, where a processor has them, is meant to differ.
SETTINGS = {"recovery": False, "min_elements": 1, "attention_precision": "float32"}
SHARE = 0.25
SUMS = {f"stablehlo.{n}" for n in ("dot_general", "convolution", "reduce", "reduce_window")}
LOOPS = {"stablehlo.while", "stablehlo.case"}
ALONE = {"stablehlo.constant", "stablehlo.iota"}


@dataclass(frozen=True)
class Case:
    seed: int
    iree: bool = False


def identify(case: Case) -> tuple[str, str]:
    return str(network(case.seed)), str(case.seed)


def judge(cases: Sequence[Case]) -> list[Outcome | None]:
    """The outcome of one case."""
    logging.disable(logging.WARNING)
    (case,) = cases
    try:
        found = wrong(network(case.seed), case.iree)
        return [Outcome(*identify(case), WRONG if found else RIGHT, found)]
    except Exception as error:
        said = str(error).partition("\n")[0][:300]
        refused = isinstance(error, UserError) and not said.startswith(DID_NOT_RUN)
        return [Outcome(*identify(case), REFUSED if refused else FAILED, said)]


def wrong(drawn: Network, iree: bool) -> str:
    """The difference; empty if there is none."""
    x, model = drawn.samples[0], drawn.model()
    program = jq.rewrite(model, pipeline=drawn.pipeline, settings=SETTINGS)["integer"]
    if found := next(op_by_op(program, x), ""):
        return found
    if not iree:
        return ""
    compiled = jq.compile(model, drawn.pipeline, settings=SETTINGS, cache=False)
    said = near(np.asarray(compiled(x)), interpret(program, x)[0], reference(drawn))
    return f"IREE: {said}" if said else ""


def reference(drawn: Network) -> np.ndarray:
    """In float, of the first sample."""
    return np.asarray(jax.jit(drawn.__call__)(drawn.params, drawn.samples[0]))


def near(got: np.ndarray, right: np.ndarray, exact: np.ndarray, share: float = SHARE) -> str:
    """The difference of two results of a quantized network beyond rounding, and by more than
    `share` of the noise that quantizing adds (root mean squares); empty if they do not."""
    said = difference(got, right, sums=True)
    return "" if not said or _size(got - right) <= share * _size(right - exact) else said


def _size(a: np.ndarray) -> float:
    return float(np.sqrt(np.mean(a.astype(np.float64) ** 2)))


def op_by_op(program: Program, x: np.ndarray) -> Iterator[str]:
    """Differences, op by op."""
    ops = [op for op in program.body.operations if judged(op)]
    known = values(program, x)
    found = XlaExecutable(shattered(program, ops, known), strict=True)(x)
    results = [op.operation.results[0] for op in ops]
    for op, v, got in zip(ops, results, found, strict=True):
        yield from _told("XLA", op, got, known[v])
    for op, step in steps_by_op(program):
        if step is not None and judged(op) and all(v in known for v in op.operation.operands):
            with np.errstate(all="ignore"):
                got = value(op, step, known)
            yield from _told("NumPy", op, got, known[op.operation.results[0]])


def judged(op: Op) -> bool:
    """True for an op with one result of a type that every evaluator gives back; loops quantize."""
    name, results = op.operation.name, list(op.operation.results)
    plain = len(results) == 1 and dtype_of(results[0]).kind in "fiub"
    return plain and name not in ALONE and name not in LOOPS


def _told(by: str, op: Op, got: np.ndarray, right: np.ndarray) -> Iterator[str]:
    if said := difference(got, right, sums=op.operation.name in SUMS):
        yield f"{by}: {op.operation.name}: {said}"


def values(program: Program, x: np.ndarray) -> dict[ir.Value, np.ndarray]:
    """Values of arguments and of every op's results, in a run of the interpreter."""
    copy, own = program.clone(), _results(program)
    copy.return_values(_results(copy))
    found = dict(zip(own, interpret(copy, x), strict=True))
    given = (x, *map(np.asarray, program.weights.values()))
    return found | dict(zip(program.body.arguments, given, strict=True))


def _results(program: Program) -> list[ir.Value]:
    every = (v for op in program.body.operations for v in op.operation.results)
    return [v for v in every if dtype_of(v).kind in "fiub"]


def shattered(program: Program, ops: Sequence[Op], known: dict[ir.Value, np.ndarray]) -> Program:
    """A program of the same ops, none of which reads another one."""
    copy = program.clone()
    there, own = list(copy.body.operations), list(program.body.operations)
    places = [own.index(op) for op in ops]
    made = dict[ir.Value, ir.Value]()
    for i in places:
        for k, v in enumerate(own[i].operation.operands):
            if isinstance(v.owner, ir.Block) or v not in known or v.owner.name in ALONE:
                continue
            if v not in made:
                with at(there[i]):
                    made[v] = copy.add_weight(f"value {len(made)}", known[v])
            there[i].operation.operands[k] = made[v]
    copy.return_values([there[i].operation.results[0] for i in places])
    copy.drop_dead()
    copy.refresh()
    return copy
