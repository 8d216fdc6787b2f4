"""A program as a JAX function of its weights, fake quantization included."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.base.tree import flatten, structure_of, unflatten
from jq.frontends.tracing.fake_quant import fake_quant_as
from jq.ir import Op, Program
from jq.ir.autodiff import evaluate
from jq.ir.encodings import FAKE_QUANT, match_fake_quant

Unsupported = evaluate.Unsupported


def as_function(program: Program) -> tuple[Callable[..., Any], dict[str, jax.Array]]:
    """`fn(params, *inputs)` in the model's structure, and its params: the weights that are
    floats, by name. Others are constants.

    Raises:
        Unsupported: an op has no JAX function."""
    weights = {name: jnp.asarray(np.asarray(w)) for name, w in program.weights.items()}
    params = {n: w for n, w in weights.items() if jnp.issubdtype(w.dtype, jnp.floating)}
    given = structure_of(program.in_tree, len(program.inputs))
    tree, back = program.out_tree, structure_of(program.out_tree, len(program.outputs))

    def fn(params: dict[str, Any], *inputs: Any) -> Any:
        values = [(weights | params)[name] for name in program.weights]
        arrays = [_bits(x) for x in flatten(given, inputs)]
        results = evaluate.run(program, arrays, values, lambda _, value: value)
        return unflatten(back, results) if tree is None else tree.unflatten(results)

    shapes = [jax.ShapeDtypeStruct(s.shape, s.dtype) for s in program.inputs]
    jax.eval_shape(fn, params, *unflatten(given, shapes))
    return fn, params


def _bits(value: Any) -> jax.Array:
    """An input as the program takes it: Python's numbers and keys are arrays there."""
    array = jnp.asarray(value)
    is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(array) if is_key else array


def _straight_through(args: list[Any], op: Op) -> Any:
    fake = match_fake_quant(op)
    assert fake is not None
    ends = [jnp.broadcast_to(v, fake.encoding.grid) for v in args[1:]]
    return fake_quant_as(fake.encoding, args[0], *ends)


evaluate.RULES[FAKE_QUANT] = _straight_through
