"""A program as a JAX function, op by op: what can be differentiated.

Only straight-line code of the common ops; places (`argmax`, `top_k`, `argsort`) have a gradient of
zero. Anything else (loops, branches) raises `Unsupported`: whoever wants a gradient must be able to
do without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jq.autodiff.jax_ops import COMPOSITES, ELEMENTWISE, RULES, Unsupported
from jq.ir import Op, Program, dtype_of, func, ir, shape_of
from jq.ir.build import integer, integers
from jq.ir.constants import evaluate as constant_value

lax: Any = jax.lax  # its annotations are too narrow for what it takes
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
        values = _results(program, op, args, functions, known)
        if len(values) == 1:
            values = [edit(op, values[0])]
        known.update(zip(o.results, values, strict=True))
    raise Unsupported("a block without an end")


def _results(
    program: Program,
    op: Op,
    args: list[Any],
    functions: Mapping[str, Any],
    known: Mapping[Any, Any],
) -> list[Any]:
    o, name = op.operation, op.operation.name.removeprefix("stablehlo.")
    if name == "composite":
        kind = ir.StringAttr(o.attributes["name"]).value
        if kind == "chlo.top_k":
            return list(lax.top_k(args[0], shape_of(o.results[0])[-1]))
        if kind in COMPOSITES:
            return [COMPOSITES[kind](*args)]
        inner = functions[ir.FlatSymbolRefAttr(o.attributes["decomposition"]).value].entry_block
        given = dict(zip(inner.arguments, args, strict=True))
        return _block(program, inner, given, functions, lambda _, value: value)
    if name == "constant":
        value = constant_value(program, o.results[0])
        if value is None:
            raise Unsupported("a constant that cannot be read")
        return [jnp.asarray(value)]
    if name in ELEMENTWISE:
        return [ELEMENTWISE[name](*args)]
    if name in RULES and len(o.results) == 1:
        return [RULES[name](args, op)]
    if name == "reduce" and not _reads_floats(o):
        block = o.regions[0].blocks[0]

        def combine(first: Any, second: Any) -> Any:
            inside = {**known, **dict(zip(block.arguments, [*first, *second], strict=True))}
            return tuple(_block(program, block, inside, functions, lambda _, value: value))

        half = len(args) // 2
        fixed = [lax.stop_gradient(a) for a in args]
        axes = integers(op, "dimensions")
        return list(lax.reduce(tuple(fixed[:half]), tuple(fixed[half:]), combine, axes))
    if name == "sort":
        return _sorted(op, args)
    raise Unsupported(f"{o.name} has no gradient here")


def _reads_floats(op: Op) -> bool:
    """Whether anything reads a float result: of `argmax`, only the places are read, and they have
    a gradient of zero."""
    floats = [r for r in op.results if dtype_of(r).kind not in "iub"]
    return any(True for r in floats for _ in r.uses)


def _sorted(op: Op, args: list[Any]) -> list[Any]:
    """A sort in ascending order, by as many of its operands as its comparison reads."""
    block = op.operation.regions[0].blocks[0]
    compared = [o for o in block.operations if o.operation.name == "stablehlo.compare"]
    if not compared or "direction LT" not in str(compared[-1].attributes["comparison_direction"]):
        raise Unsupported("a sort in an order of its own")
    read = [i // 2 for i, a in enumerate(block.arguments) if any(True for _ in a.uses)]
    return list(lax.sort(args, dimension=integer(op, "dimension"), num_keys=max(read) + 1))


__all__ = ["Edit", "Unsupported", "run"]
