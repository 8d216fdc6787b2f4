"""From a model, or a file of one, to a `Program` at level `float`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jq.ir import Program, TensorSpec, dtype_of, func, ir, run_passes, shape_of
from jq.model import Model
from jq.trace.chlo import drop_identity_calls, legalize
from jq.trace.inline import inline_calls
from jq.trace.loops import hoist_invariants
from jq.trace.lower import Lowered, lower
from jq.trace.naming import name_ops
from jq.trace.weights import is_same_data, to_array

log = logging.getLogger("jq")


def trace(model: Model | Program, *, sizes: Mapping[str, int] | None = None) -> Program:
    """The float program of a model.

    Args:
        model: a `jq.Model`; a `Program` comes back as it is.
        sizes: values of symbolic dimensions, by name.
    """
    if isinstance(model, Program):
        return model
    return _from_model(model, sizes)


def _from_model(model: Model, sizes: Mapping[str, int] | None) -> Program:
    lowered = lower(model, sizes)
    flatten(lowered.module)
    return _program(lowered)


def flatten(module: ir.Module) -> None:
    """One function of plain StableHLO, in place: no calls, no constant carries, no duplicates."""
    legalize(module)
    inline_calls(module)
    block = main_of(module).entry_block
    drop_identity_calls(block)
    hoist_invariants(block)
    run_passes(module, "canonicalize", "cse", "symbol-dce")


def _program(lowered: Lowered) -> Program:
    """Gives arguments their data; equal weights become one, unused ones are dropped."""
    block = main_of(lowered.module).entry_block
    first = len(lowered.inputs)
    weights: dict[str, np.ndarray] = {}
    owner: dict[str, ir.Value] = {}
    unused = []
    for arg, (name, leaf) in zip(list(block.arguments)[first:], lowered.params, strict=True):
        if not any(True for _ in arg.uses):
            unused.append(name)
            continue
        array = to_array(leaf, dtype_of(arg), name)
        twin = next((n for n, other in weights.items() if is_same_data(array, other)), None)
        if twin is None:
            weights[name], owner[name] = array, arg
        else:
            arg.replace_all_uses_with(owner[twin])
    if unused:
        log.info("%d parameters are not used: %s", len(unused), ", ".join(unused))
    for i in reversed(range(first, len(block.arguments))):
        if not any(True for _ in block.arguments[i].uses):
            block.erase_argument(i)
    return make_program(
        lowered.module,
        weights,
        lowered.inputs,
        lowered.outputs,
        trees=(lowered.in_tree, lowered.out_tree),
    )


def make_program(
    module: ir.Module,
    weights: Mapping[str, np.ndarray],
    inputs: Sequence[str],
    outputs: Sequence[str],
    trees: tuple[Any, Any] = (None, None),
) -> Program:
    """A verified program of `@main(inputs..., weights...)`, whose ops have their names."""
    main = main_of(module)
    block = main.entry_block
    terminator = block.operations[len(block.operations) - 1]
    for kind in ("res_attrs", "arg_attrs"):
        if kind in main.attributes:
            del main.attributes[kind]
    for key in list(module.operation.attributes):
        if key != "sym_name":
            del module.operation.attributes[key]
    program = Program(
        module,
        {name: np.ascontiguousarray(a).reshape(a.shape) for name, a in weights.items()},
        _specs(inputs, list(block.arguments)[: len(inputs)]),
        _specs(outputs, list(terminator.operands)),
        in_tree=trees[0],
        out_tree=trees[1],
    )
    program.refresh()
    name_ops(program)
    program.verify()
    return program


def main_of(module: ir.Module) -> func.FuncOp:
    return next(op for op in module.body.operations if op.name.value == "main")


def _specs(names: Sequence[str], values: Sequence[ir.Value]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name, shape_of(value), dtype_of(value).name)
        for name, value in zip(names, values, strict=True)
    )
