"""Ops that hold blocks of their own, in JAX: loops, branches, sorts, and reductions."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from jq.ir import Op, Program
from jq.ir.autodiff.jax_ops import Unsupported
from jq.ir.autodiff.reductions import Inside, reduce, reduce_window
from jq.ir.build import integer
from jq.ir.stack import trip_count

lax: Any = jax.lax  # its annotations are too narrow for what it takes


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
    """In ascending order, by as many of its operands as its comparison reads."""
    block = op.regions[0].blocks[0]
    compared = [o for o in block.operations if o.operation.name == "stablehlo.compare"]
    if not compared or "direction LT" not in str(compared[-1].attributes["comparison_direction"]):
        raise Unsupported("a sort in an order of its own has no gradient here")
    read = [i // 2 for i, a in enumerate(block.arguments) if any(True for _ in a.uses)]
    return lax.sort(args, dimension=integer(op, "dimension"), num_keys=max(read) + 1)


# From the values of the operands, the op, the program, and what blocks give.
RULES: dict[str, Callable[[list[Any], Any, Program, Inside], Any]] = {
    "while": _while,
    "case": _case,
    "if": _if,
    "reduce": reduce,
    "reduce_window": reduce_window,
    "sort": _sort,
}
