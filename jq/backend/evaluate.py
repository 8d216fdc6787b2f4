"""A program as a JAX function, op by op: what can be differentiated.

Only straight-line code of the common ops. Anything else (loops, branches, sorting) raises
`Unsupported`: whoever wants a gradient must be able to do without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from jq.backend.jax_ops import COMPOSITES, ELEMENTWISE, RULES, Unsupported
from jq.ir import Program, func, ir
from jq.ir.constants import evaluate as constant_value

Edit = Callable[[Any, Any], Any]  # (op, its value) -> the value to go on with


def run(program: Program, inputs: Sequence[Any], weights: Sequence[Any], edit: Edit) -> list[Any]:
    """The program's results from JAX arrays.

    Args:
        edit: is given every op of one result with its value, and gives the value to use.
    """
    functions = {
        op.name.value: op for op in program.module.body.operations if isinstance(op, func.FuncOp)
    }
    known: dict[Any, Any] = dict(zip(program.body.arguments, [*inputs, *weights], strict=True))
    return _block(program, program.body, known, functions, edit)


def _block(
    program: Program,
    block: ir.Block,
    known: dict[Any, Any],
    functions: Mapping[str, Any],
    edit: Edit,
) -> list[Any]:
    for op in block.operations:
        o = op.operation
        args = [known[v] for v in o.operands]
        if o.name in ("func.return", "stablehlo.return"):
            return args
        values = _results(program, op, args, functions)
        if len(values) == 1:
            values = [edit(op, values[0])]
        known.update(zip(o.results, values, strict=True))
    raise Unsupported("a block without an end")


def _results(program: Program, op: Any, args: list[Any], functions: Mapping[str, Any]) -> list[Any]:
    o, name = op.operation, op.operation.name.removeprefix("stablehlo.")
    if name == "composite":
        kind = ir.StringAttr(o.attributes["name"]).value
        if kind in COMPOSITES:
            return [COMPOSITES[kind](*args)]
        inner = functions[ir.FlatSymbolRefAttr(o.attributes["decomposition"]).value].entry_block
        known = dict(zip(inner.arguments, args, strict=True))
        return _block(program, inner, known, functions, lambda _, value: value)
    if name == "constant":
        value = constant_value(program, o.results[0])
        if value is None:
            raise Unsupported("a constant that cannot be read")
        return [jnp.asarray(value)]
    if name in ELEMENTWISE:
        return [ELEMENTWISE[name](*args)]
    if name in RULES and len(o.results) == 1:
        return [RULES[name](args, op)]
    raise Unsupported(f"{o.name} has no gradient here")


__all__ = ["Edit", "Unsupported", "run"]
