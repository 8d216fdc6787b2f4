"""From a `jq.Model` to a StableHLO module in our context, with its arguments' leaves."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp

from jq.base.errors import OF_USERS, UserError
from jq.base.from_jax import leaf_name, position, reads_escaped
from jq.base.tree import check_nesting, treedef_of
from jq.frontends.model import Model
from jq.frontends.tracing.custom_calls import without_checks
from jq.frontends.tracing.dynamic import concrete_shape
from jq.frontends.tracing.inputs import leaf_names, named_leaves, unique
from jq.frontends.tracing.modules import Imported
from jq.frontends.tracing.trace_errors import cannot_trace, expected, of_shapes
from jq.ir import bytecode_of, parse_module


def lower(model: Model, sizes: Mapping[str, int] | None = None) -> Imported:
    """Traces `model` with its parameters as arguments; symbolic dimensions get their `sizes`.

    The module is as JAX made it: `@main(input leaves..., param leaves...)`, nothing dropped."""
    with jax.enable_x64(True) if model.x64 else nullcontext():
        return _lower(model, sizes)


def _lower(model: Model, sizes: Mapping[str, int] | None) -> Imported:
    param_tree = treedef_of(model.params, "parameters")
    params = named_leaves(model.params, "params")
    check_nesting(tuple(model.example_inputs), "inputs")
    examples, in_tree = jax.tree_util.tree_flatten_with_path(tuple(model.example_inputs))
    inputs = _input_names([path for path, _ in examples], model)

    def program(*leaves: Any) -> Any:
        args = jax.tree_util.tree_unflatten(in_tree, leaves[: len(examples)])
        found = model.fn(jax.tree_util.tree_unflatten(param_tree, leaves[len(examples) :]), *args)
        check_nesting(found, "outputs")
        return found

    leaves = [*zip(inputs, (leaf for _, leaf in examples), strict=True), *params]
    specs = [_spec(leaf, name, sizes) for name, leaf in leaves]
    try:
        lowered, notes = without_checks(_lowered, program, specs)
    except OF_USERS as error:
        shape = expected(program, specs, inputs) if of_shapes(error) else None
        raise cannot_trace(error, model, shape) from error
    return Imported(
        parse_module(bytecode_of(lowered.compiler_ir("stablehlo")), what="the traced model"),
        inputs,
        [name for name, _ in named_leaves(lowered.out_info, "out")],
        in_tree,
        jax.tree_util.tree_structure(lowered.out_info),
        params,
        notes,
    )


def _lowered(program: Callable[..., Any], specs: Sequence[Any]) -> Any:
    """Nothing is dropped here, so that arguments and leaves stay one to one."""
    traced = jax.jit(program, keep_unused=True).trace(*specs)
    if reads_escaped(traced):
        raise jax.errors.UnexpectedTracerError("it reads a value of another trace, kept aside")
    return traced.lower(lowering_platforms=("cpu",))


def _input_names(paths: list[Any], model: Model) -> list[str]:
    """`arg0`, `arg1/x`, or the model's own names, one an input or one a leaf."""
    default, given = leaf_names(paths, "arg"), model.input_names
    if given is None:
        return default
    if len(set(given)) < len(given):
        raise UserError(f"two inputs have one name: {', '.join(given)}")
    if len(given) == len(model.example_inputs):
        both = [(given[position(path[0]) or 0], leaf_name(path[1:])) for path in paths]
        return unique(["/".join(filter(None, pair)) for pair in both])
    if len(given) == len(paths):
        return list(given)
    hint = "give one name per input"
    raise UserError(f"{len(given)} input names for {len(model.example_inputs)} inputs", hint=hint)


def _spec(leaf: Any, name: str, sizes: Mapping[str, int] | None) -> jax.ShapeDtypeStruct:
    """Shape and type under which a leaf is traced, the way `jax.jit` would see it."""
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    dtype = str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else dtype
    if isinstance(leaf, jax.Array) and leaf.is_deleted():
        hint = "give a copy of what is donated (jnp.copy)"
        raise UserError("the array was deleted, or donated to a function", op=name, hint=hint)
    if shape is not None and dtype is not None:
        if not jnp.issubdtype(dtype, jax.dtypes.extended):
            dtype = jax.dtypes.canonicalize_dtype(dtype)
        weak = bool(getattr(leaf, "weak_type", False))
        return jax.ShapeDtypeStruct(concrete_shape(shape, name, sizes), dtype, weak_type=weak)
    try:
        kind = jax.typeof(leaf)
    except TypeError:
        hint = "parameters and inputs are arrays; a setting is fixed in the function: "
        hint += "functools.partial(fn, mode=...)"
        raise UserError(f"{type(leaf).__name__} is not an array", op=name, hint=hint) from None
    except OverflowError as error:  # Python's integers have no end
        raise UserError(f"{error}", op=name, hint="give a smaller number, or a float") from None
    return jax.ShapeDtypeStruct(kind.shape, kind.dtype, weak_type=kind.weak_type)
