"""A program as a JAX function, op by op: what can be differentiated.

Places (`argmax`, `top_k`, `argsort`) and bits have a gradient of zero. What is not known here, or
JAX cannot differentiate, raises `Unsupported`: whoever wants a gradient must be able to do without.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jq.ir import Op, Program, func, ir, shape_of
from jq.ir.autodiff import blocks, indexing
from jq.ir.autodiff.jax_ops import COMPOSITES, ELEMENTWISE, Unsupported
from jq.ir.autodiff.jax_ops import RULES as OPS
from jq.ir.constants import evaluate as constant_value
from jq.ir.memory.xla_options import xla_options

lax: Any = jax.lax  # its annotations are too narrow for what it takes
RULES = {**OPS, **indexing.RULES}
Edit = Callable[[ir.Value, Any], Any]  # (a result, its value) -> the value to go on with


def compiled(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """Compiles a function with `jax.jit` for such arguments, with the options that XLA needs."""
    lowered = jax.jit(function).lower(*arguments)
    made: Callable[..., Any] = lowered.compile({**xla_options(lowered.compiler_ir())})
    return made


def run(program: Program, inputs: Sequence[Any], weights: Sequence[Any], edit: Edit) -> list[Any]:
    """The program's results from JAX arrays.

    Args:
        edit: is given every result of an op with its value, and gives the value to use.
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
        for result, value in zip(o.results, values, strict=True):
            known[result] = edit(result, value)
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
    if name in RULES:
        return [RULES[name](args, op)]
    if name not in blocks.RULES:
        raise Unsupported(f"{o.name} has no gradient here")

    def inside(block: ir.Block, values: Sequence[Any]) -> list[Any]:
        own = {**known, **dict(zip(block.arguments, values, strict=True))}
        return _block(program, block, own, functions, lambda _, value: value)

    return list(blocks.RULES[name](args, op, program, inside))


__all__ = ["Edit", "Unsupported", "run"]
