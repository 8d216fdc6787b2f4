"""Gathers and scatters of StableHLO in JAX."""

from typing import Any

import jax
import jax.numpy as jnp

from jq.ir import Op, ir, stablehlo
from jq.ir.autodiff.jax_ops import Unsupported
from jq.ir.autodiff.reductions import combiner
from jq.ir.build import integers

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
    name = "set" if _replaces(op) else combiner(op)
    kinds = {"set": "scatter", "add": "scatter_add", "multiply": "scatter_mul"}
    kinds |= {"minimum": "scatter_min", "maximum": "scatter_max"}
    if name not in kinds:
        raise Unsupported("a scatter by a function of its own has no gradient here")
    if name == "multiply" and not unique:
        raise Unsupported("a scatter by multiply at equal places has no gradient here")
    function = getattr(lax, kinds[name])
    return function(x, indices, updates, numbers, unique_indices=unique, mode="drop")


def _replaces(op: Op) -> bool:
    """True if a scatter writes its updates as they are."""
    block = op.regions[0].blocks[0]
    return len(block.operations) == 1 and block.operations[0].operands[0] == block.arguments[1]


def _vectors_last(indices: Any, axis: int) -> Any:
    if axis == indices.ndim:  # each index is a scalar
        return indices[..., None]
    return jnp.moveaxis(indices, axis, -1)


def _without(axes: Any, vectors: int) -> tuple[int, ...]:
    return tuple(axis - (axis > vectors) for axis in axes)


RULES = {"gather": gather, "scatter": scatter}
