"""A program as a JAX function, op by op: what can be differentiated.

Places (`argmax`, `top_k`, `argsort`) and bits have a gradient of zero. What is not known here, or
JAX cannot differentiate, raises `Unsupported`: whoever wants a gradient must be able to do without.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from jq.ir import Op, Program, ir, is_read, shape_of, stablehlo
from jq.ir.autodiff.jax_ops import RULES as OPS
from jq.ir.autodiff.jax_ops import Inside, Unsupported, reduce, reduce_window
from jq.ir.build import direction_of, integer, integers
from jq.ir.constants import evaluate as constant_value
from jq.ir.memory import xla_options
from jq.ir.stack import trip_count
from jq.ir.values import combiner, functions_of

lax: Any = jax.lax  # its annotations are too narrow for what it takes


def gather(args: list[Any], op: Op) -> Any:
    """`lax.gather` of the operand and the start indices; an index out of bounds is clamped."""
    d = stablehlo.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    numbers = lax.GatherDimensionNumbers(
        tuple(d.offset_dims),
        tuple(d.collapsed_slice_dims),
        tuple(d.start_index_map),
        tuple(d.operand_batching_dims),
        _without(d.start_indices_batching_dims, d.index_vector_dim),
    )
    indices = _vectors_last(args[1], d.index_vector_dim)
    return lax.gather(args[0], indices, numbers, integers(op, "slice_sizes"), mode="clip")


def scatter(args: list[Any], op: Op) -> Any:
    """A scatter of one operand, as JAX has a function for it; windows not whole are dropped."""
    said = op.attributes
    d = stablehlo.ScatterDimensionNumbers(said["scatter_dimension_numbers"])
    numbers = lax.ScatterDimensionNumbers(
        tuple(d.update_window_dims),
        tuple(d.inserted_window_dims),
        tuple(d.scattered_dims_to_operand_dims),
        tuple(d.input_batching_dims),
        _without(d.scatter_indices_batching_dims, d.index_vector_dim),
    )
    indices = _vectors_last(args[1], d.index_vector_dim)
    unique = "unique_indices" in said and ir.BoolAttr(said["unique_indices"]).value
    x, updates = args[0], args[2]
    block = op.regions[0].blocks[0]
    as_is = len(block.operations) == 1 and block.operations[0].operands[0] == block.arguments[1]
    name = "set" if as_is else combiner(op)
    kinds = {"set": "scatter", "add": "scatter_add", "multiply": "scatter_mul"}
    kinds |= {"minimum": "scatter_min", "maximum": "scatter_max"}
    if name not in kinds:
        raise Unsupported("a scatter by a function of its own has no gradient here")
    if name == "multiply" and not unique:
        raise Unsupported("a scatter by multiply at equal places has no gradient here")
    function = getattr(lax, kinds[name])
    return function(x, indices, updates, numbers, unique_indices=unique, mode="drop")


def _vectors_last(indices: Any, axis: int) -> Any:
    if axis == indices.ndim:  # each index is a scalar
        return indices[..., None]
    return jnp.moveaxis(indices, axis, -1)


def _without(axes: Any, vectors: int) -> tuple[int, ...]:
    return tuple(axis - (axis > vectors) for axis in axes)


# Ops that hold blocks of their own, in JAX: loops, branches, sorts, and reductions.


@contextmanager
def reverse_mode() -> Iterator[None]:
    """Raises `Unsupported` where JAX says that it cannot differentiate a loop."""
    try:
        yield
    except ValueError as error:
        if "Reverse-mode differentiation" not in str(error):
            raise
        raise Unsupported("a loop that ends where its data say has no gradient") from error


def _while(args: list[Any], op: Op, program: Program, inside: Inside) -> Any:
    test, body = (region.blocks[0] for region in op.regions)

    def step(carry: Any) -> Any:
        return tuple(inside(body, carry))

    trips = trip_count(program, op)
    if trips is not None:
        return lax.scan(lambda carry, _: (step(carry), None), tuple(args), None, length=trips)[0]
    return lax.while_loop(lambda carry: inside(test, carry)[0], step, tuple(args))


def _case(args: list[Any], op: Op, program: Program, inside: Inside) -> Any:
    """A number beyond the branches means the last one."""
    blocks = [region.blocks[0] for region in op.regions]
    last = len(blocks) - 1
    chosen = jnp.where((args[0] < 0) | (args[0] > last), last, args[0])
    return lax.switch(chosen, [lambda block=block: tuple(inside(block, ())) for block in blocks])


def _if(args: list[Any], op: Op, program: Program, inside: Inside) -> Any:
    yes, no = (region.blocks[0] for region in op.regions)
    return lax.cond(args[0], lambda: tuple(inside(yes, ())), lambda: tuple(inside(no, ())))


def _sort(args: list[Any], op: Op, program: Program, inside: Inside) -> Any:
    """Sorts in ascending order, by as many operands as the comparison reads."""
    block = op.regions[0].blocks[0]
    compared = [o for o in block.operations if o.operation.name == "stablehlo.compare"]
    if not compared or direction_of(compared[-1]) != "LT":
        raise Unsupported("a sort in an order of its own has no gradient here")
    read = [i // 2 for i, a in enumerate(block.arguments) if is_read(a)]
    return lax.sort(args, dimension=integer(op, "dimension"), num_keys=max(read) + 1)


# From the values of the operands, the op, the program, and what blocks give.
BLOCKS: dict[str, Callable[[list[Any], Any, Program, Inside], Any]] = {
    "while": _while,
    "case": _case,
    "if": _if,
    "reduce": reduce,
    "reduce_window": reduce_window,
    "sort": _sort,
}


RULES = OPS | {"gather": gather, "scatter": scatter}
Functions = Mapping[str, Any]
Edit = Callable[[ir.Value, Any], Any]  # (a result, its value) -> the value to go on with


def compiled(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """Compiles a function with `jax.jit` for such arguments, with the options that XLA needs."""
    lowered = jax.jit(function).lower(*arguments)
    made: Callable[..., Any] = lowered.compile({**xla_options(lowered.compiler_ir())})
    return made


def run(program: Program, inputs: Sequence[Any], weights: Sequence[Any], edit: Edit) -> list[Any]:
    """The program's results from JAX arrays.

    Args:
        edit: is given every result of an op with its value, and gives the value to use."""
    known: dict[Any, Any] = dict(zip(program.body.arguments, [*inputs, *weights], strict=True))
    return _block(program, program.body, known, functions_of(program.module), edit)


def run_ops(program: Program, ops: Iterable[Op], known: dict[Any, Any]) -> None:
    """Adds to `known`, which has the JAX arrays of values read from outside, the ops' results."""
    functions = functions_of(program.module)
    for op in ops:
        args = [known[v] for v in op.operation.operands]
        results = _results(program, op, args, functions, known)
        known.update(zip(op.operation.results, results, strict=True))


def _block(
    program: Program, block: ir.Block, known: dict[Any, Any], functions: Functions, edit: Edit
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
    program: Program, op: Op, args: list[Any], functions: Functions, known: Mapping[Any, Any]
) -> list[Any]:
    o, name = op.operation, op.operation.name.removeprefix("stablehlo.")
    if name == "composite":
        kind = ir.StringAttr(o.attributes["name"]).value
        if kind in RULES:
            return [RULES[kind](args, op)]
        if kind == "chlo.top_k":
            return list(lax.top_k(args[0], shape_of(o.results[0])[-1]))
        inner = functions[ir.FlatSymbolRefAttr(o.attributes["decomposition"]).value].entry_block
        given = dict(zip(inner.arguments, args, strict=True))
        return _block(program, inner, given, functions, lambda _, value: value)
    if name == "constant":
        value = constant_value(program, o.results[0])
        if value is None:
            raise Unsupported("a constant that cannot be read")
        return [jnp.asarray(value)]
    if name in RULES:
        return [RULES[name](args, op)]
    if name not in BLOCKS:
        raise Unsupported(f"{o.name} has no gradient here")

    def inside(block: ir.Block, values: Sequence[Any]) -> list[Any]:
        own = {**known, **dict(zip(block.arguments, values, strict=True))}
        return _block(program, block, own, functions, lambda _, value: value)

    return list(BLOCKS[name](args, op, program, inside))


def spread(grid: Any, block: Sequence[int], shape: Sequence[int]) -> Any:
    """A number for each block, given to each element of an array of `shape`."""
    for axis, (size, count) in enumerate(zip(block, shape, strict=True)):
        wide = grid if size == 1 else jnp.repeat(grid, size, axis)
        grid = jax.lax.slice_in_dim(wide, 0, count, axis=axis)
    return grid
