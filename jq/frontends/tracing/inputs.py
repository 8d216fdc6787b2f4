"""Names of the leaves of inputs and parameters; inputs and batches of them as a user passes them,
to the flat arrays that a program takes."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.base.errors import UserError
from jq.base.from_jax import is_value, leaf_name, position
from jq.base.tree import Structure, flatten
from jq.frontends.model import Batches, Model, batches
from jq.ir import TensorSpec


def leaf_names(paths: Sequence[Sequence[Any]], kind: str) -> list[str]:
    """The names of all leaves; what would start with a position gets `kind` in front: `arg0/x`.

    A box around one array, such as a Flax variable, adds `value` to its path: that is left out.
    Names are unique: where keys with slashes or colons make two of them equal (or one look like a
    stored part of another, `kernel:scale`), the later gets `#2`."""
    inside = Counter(tuple(path[:n]) for path in paths for n in range(len(path)))
    names = []
    for path in paths:
        boxed = len(path) > 1 and is_value(path[-1]) and inside[tuple(path[:-1])] == 1
        name = leaf_name(path[:-1] if boxed else path) or f"{kind}0"
        named = not path or position(path[0]) is None
        names.append(name if named else f"{kind}{name}")
    return unique(names)


def named_leaves(tree: Any, kind: str) -> list[tuple[str, Any]]:
    """The leaves of a tree with their names."""
    found = jax.tree_util.tree_leaves_with_path(tree)
    names = leaf_names([path for path, _ in found], kind)
    return [(name, leaf) for name, (_, leaf) in zip(names, found, strict=True)]


def unique(names: Sequence[str]) -> list[str]:
    """The names, made different from one another as `leaf_names` says."""
    natural, taken = set(names), dict[str, None]()
    for name in names:
        own = [] if name.rpartition(":")[0] in natural else [name]
        numbered = (n for i in count(2) if (n := f"{name}#{i}") not in natural)
        taken[next(n for n in chain(own, numbered) if n not in taken)] = None
    return list(taken)


def with_params(model: Model, leaves: Mapping[str, Any]) -> Model:
    """A model like `model` whose parameters of these names are other leaves."""
    new = [leaves.get(name, leaf) for name, leaf in named_leaves(model.params, "params")]
    tree = jax.tree_util.tree_structure(model.params)
    return dataclasses.replace(model, params=jax.tree_util.tree_unflatten(tree, new))


# What JAX makes of an array of 64 bits, unless `jax_enable_x64` is set.
_NARROWED = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}


def flat_inputs(
    specs: Sequence[TensorSpec], structure: Structure, inputs: Sequence[Any]
) -> list[np.ndarray]:
    """One array per input of the program, its shape and type checked.

    A Python number or list takes the input's type; an array must have it, or one of 64 bits that
    JAX narrows to it; integers have to fit, which JAX does not ask. A typed random key
    (`jax.random.key`) is its data."""
    if not isinstance(inputs, Sequence) or isinstance(inputs, str):
        what = f"inputs come as a tuple, one entry an input, not as {type(inputs).__name__}"
        raise UserError(what, hint="a batch of one array is (x,)")
    children = structure.get("tuple", structure.get("list"))
    if children is not None and len(inputs) != len(children):
        hint = None if children else "it has no inputs: give ()"
        raise UserError(f"{len(inputs)} inputs given, the model takes {len(children)}", hint=hint)
    try:
        leaves = flatten(structure, tuple(inputs))
    except ValueError as error:
        raise UserError(f"inputs do not fit the model: {error}") from error
    return [check_array(spec, leaf) for spec, leaf in zip(specs, leaves, strict=True)]


def check_array(spec: TensorSpec, value: Any) -> np.ndarray:
    """`value` as the array that `spec` asks for, or a `UserError` that says what differs."""
    if isinstance(value, jax.core.Tracer):
        what = "a compiled model cannot be called inside of jax.jit, jax.vmap or jax.grad"
        raise UserError(what, hint="call it outside of them: IREE runs it, not JAX")
    if isinstance(value, jax.ShapeDtypeStruct):
        what = f"input {spec.name!r} is a shape (jax.ShapeDtypeStruct) without values"
        raise UserError(what, hint="give data: arrays of that shape")
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    try:
        array = np.asarray(value) if hasattr(value, "dtype") else np.asarray(value, spec.dtype)
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise UserError(f"input {spec.name!r} is no array of {spec.dtype}: {error}") from error
    if _NARROWED.get(array.dtype.name) == spec.dtype:
        wide, array = array, array.astype(spec.dtype)
        if array.dtype.kind in "iu" and (array != wide).any():
            raise UserError(f"input {spec.name!r} has values that do not fit {spec.dtype}")
    if array.dtype.name != spec.dtype:
        what = f"input {spec.name!r} has type {array.dtype.name}, the model takes {spec.dtype}"
        raise UserError(what, hint=f"convert it with .astype({spec.dtype!r})")
    if array.shape != spec.shape:
        what = f"input {spec.name!r} has shape {array.shape}, the model takes {spec.shape}"
        raise UserError(what, hint=how_to_shape(array.shape, spec.shape))
    return array


def how_to_shape(given: tuple[int, ...], wanted: tuple[int, ...]) -> str | None:
    """A hint about a batch that is missing, too many, or of another size; else None."""
    if not wanted:
        return None
    if given == wanted[1:]:
        one = "add the axis of the batch, x[None]"
        return one if wanted[0] == 1 else f"it is one sample: give {wanted[0]} together, as a batch"
    if given[1:] == wanted:
        return "its first axis is one too many: give one x after the other"
    if given[1:] == wanted[1:]:
        batch = f"the program takes {wanted[0]} at a time: give batches of that size"
        return f"{batch}, and leave out a last one that is smaller"
    return None


def flat_batches(
    specs: Sequence[TensorSpec], structure: Structure, source: Batches
) -> list[list[np.ndarray]] | None:
    """One list of arrays for each batch, shapes and types checked; None stays None.

    Raises:
        UserError: the data are no batches, or one of them does not fit; it says which."""
    if source is None:
        return None
    _refuse_arrays(source)
    return [_flat(specs, structure, batch, i) for i, batch in enumerate(batches(source) or ())]


def _refuse_arrays(source: Any) -> None:
    """Refuses what holds all the data at once: going along it gives rows, or names."""
    what = type(source).__name__
    if isinstance(source, Mapping):
        hint = "give [(arrays[NAME],)], one array for each input, or the path of an .npz file"
    elif hasattr(source, "shape") and hasattr(source, "dtypes"):  # pandas
        hint = "give [(x,)] with x = data.to_numpy(), one tuple for each batch"
    elif hasattr(source, "shape"):
        hint = "give [(x,)] if it is one batch, [(x,) for x in data] if its first axis counts them"
    elif isinstance(source, Iterable) or callable(source):
        return
    else:
        hint = "give [(x,) for x in data]"
    raise UserError(f"data are batches, each a tuple of inputs, and not a {what}", hint=hint)


def _flat(
    specs: Sequence[TensorSpec], structure: Structure, batch: Any, index: int
) -> list[np.ndarray]:
    try:
        return flat_inputs(specs, structure, batch)
    except UserError as error:
        hint = error.hint
        wanted = len(structure.get("tuple", structure.get("list", ())))
        if isinstance(batch, tuple | list) and 0 < wanted < len(batch):
            hint = "leave out what the model does not take, as labels: [(x,) for x, label in data]"
        elif not isinstance(batch, tuple | list):
            hint = "a batch of one array is (x,): [(x,) for x in data]"
        raise UserError(
            error.message, op=error.op, location=f"batch {index} of the data", hint=hint
        ) from error
