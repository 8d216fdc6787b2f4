"""A program's values by NumPy, op by op: what golden vectors are replayed with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jq.device.replay_ops import OPS
from jq.device.steps import step_of
from jq.ir import Op, Program, dtype_of, ir
from jq.ir.oracle.interpreter import interpret

Arrays = Sequence[np.ndarray]


def steps_by_op(program: Program) -> list[tuple[Op, dict[str, Any] | None]]:
    """Each op with what NumPy needs of it; None for those that it has not."""
    return [(op, _step(op)) for op in program.body.operations if op.operation.results]


def _step(op: Op) -> dict[str, Any] | None:
    values = (*op.operation.operands, *op.operation.results)
    if any(dtype_of(v).kind == "c" for v in values):
        return None
    try:
        return step_of(op)
    except (ValueError, TypeError):  # a constant of a type that NumPy has not
        return None


def by_numpy(program: Program, calls: Sequence[Arrays]) -> list[Arrays]:
    """Results by NumPy, with the interpreter's for what it lacks (loops, sorts, functions)."""
    steps = steps_by_op(program)
    read = {v for op, step in steps if step is not None for v in op.operation.operands}
    read |= set(program.returned)
    others = [
        (i, k)
        for i, (op, step) in enumerate(steps)
        for k, v in enumerate(op.operation.results)
        if step is None and v in read
    ]
    missing = [steps[i][0].operation.results[k] for i, k in others]
    given = program.clone()
    there = [op for op in given.body.operations if op.operation.results]
    given.return_values([there[i].operation.results[k] for i, k in others])
    results = []
    for arrays in calls:
        known = dict(zip(missing, interpret(given, *arrays), strict=True)) if missing else {}
        known |= arguments(program, arrays)
        results.append(replayed(program, steps, known))
    return results


def arguments(program: Program, arrays: Arrays) -> dict[ir.Value, np.ndarray]:
    every = (*arrays, *program.weights.values())
    return dict(zip(program.body.arguments, map(np.asarray, every), strict=True))


def replayed(
    program: Program,
    steps: Sequence[tuple[Op, dict[str, Any] | None]],
    known: dict[ir.Value, np.ndarray],
) -> Arrays:
    """Results, where `known` has the arguments and what steps are missing."""
    with np.errstate(all="ignore"):
        for op, step in steps:
            if step is not None:
                known[op.operation.results[0]] = value(op, step, known)
    return [known[v] for v in program.returned]


def value(op: Op, step: dict[str, Any], known: dict[ir.Value, np.ndarray]) -> np.ndarray:
    operands = [known[v] for v in op.operation.operands]
    # The name of a type that NumPy has not is known to it once ml_dtypes is there.
    return np.asarray(OPS[step["op"]](step, *operands)).astype(np.dtype(step["type"]))
