"""Errors in a model while JAX traces it, explained to the model's author.

An image comes without its channels, without its batch, with its channels first, or with others than
the weights have. JAX and Flax then speak of a kernel or of broadcasting somewhere inside. Here the
model is traced with the nearest other shapes, one input at a time: the first that works is named.
"""

import inspect
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from jq.base.errors import UserError
from jq.base.from_jax import of_mesh
from jq.frontends.model import Model
from jq.frontends.tracing.inputs import leaf_names

# What to write where a model needs the value of what is known only when the program runs.
INSTEAD: dict[type[Exception], str] = {
    jax.errors.TracerArrayConversionError: "compute with jax.numpy, not with NumPy",
    jax.errors.TracerBoolConversionError: "choose with jnp.where or jax.lax.cond, not with if",
    jax.errors.TracerIntegerConversionError: "index with arrays of jax.numpy",
    jax.errors.ConcretizationTypeError: "sizes and loops must not depend on values of the inputs",
}
_LIBRARIES = (str(Path(jax.__file__).parent), str(Path(__file__).parents[2]))  # JAX, and us


def of_shapes(error: BaseException) -> bool:
    """True for an error that an input of another shape may help."""
    others: tuple[type[Exception], ...] = (UserError, *INSTEAD)
    kinds = isinstance(error, (TypeError, ValueError)) or "Shape" in type(error).__name__  # Flax's
    return kinds and not isinstance(error, others)


def cannot_trace(
    error: BaseException, model: Model, shape: tuple[str, str] | None = None
) -> UserError:
    """JAX's own first line, with the place in the user's code that it came from; `shape`: what is
    wrong with an input's shape, and what to do, where that is known."""
    if isinstance(error, UserError):
        return error
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if shape is not None:
        said = f"{shape[0]} ({type(error).__name__}: {(lines or ['no message'])[0]})"
        return UserError(said, location=_place(error, model), hint=shape[1])
    message = f"the model cannot be traced: {type(error).__name__}: {(lines or ['no message'])[0]}"
    return UserError(message, location=_place(error, model), hint=_hint(error, model))


def _place(error: BaseException, model: Model) -> str | None:
    """The last line of the traceback that is the user's; else where the model's function is."""
    frames = traceback.extract_tb(error.__traceback__)
    if own := [f for f in frames if not f.filename.startswith(_LIBRARIES)]:
        return f"{own[-1].filename}:{own[-1].lineno}"
    code = getattr(inspect.unwrap(model.fn), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else None


def _hint(error: BaseException, model: Model) -> str | None:
    if isinstance(error, TypeError) and not _takes(model):
        given = ", ".join(["params", *(f"input {i}" for i in range(len(model.example_inputs)))])
        return f"it is called as fn({given}); fix other arguments: functools.partial(fn, name=...)"
    hint = next((text for kind, text in INSTEAD.items() if isinstance(error, kind)), None)
    hint = hint or of_mesh(error)
    if hint and (names := _settings(model)):
        own = f"{', '.join(names)}: a Python number there is traced as an array"
        return f"{hint}; {own}, so fix a setting in the function: functools.partial(fn, name=...)"
    return hint


def _takes(model: Model) -> bool:
    """True if the function can be called with the parameters and that many inputs."""
    try:
        inspect.signature(model.fn).bind(model.params, *model.example_inputs)
    except TypeError:
        return False
    except ValueError:  # no signature: built into Python
        return True
    return True


def _settings(model: Model) -> list[str]:
    """Names of inputs and parameters that are Python's own bools and integers."""
    return [
        *_python_numbers(tuple(model.example_inputs), "arg"),
        *_python_numbers(model.params, "params"),
    ]


def _python_numbers(tree: Any, name: str) -> list[str]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    names = leaf_names([path for path, _ in leaves], name)
    return [n for n, (_, leaf) in zip(names, leaves, strict=True) if isinstance(leaf, int)]


Shape = tuple[int, ...]
MOST_INPUTS, MOST_SIZES = 4, 6  # what is tried takes about as long as tracing, each time


def expected(
    program: Callable[..., Any], specs: Sequence[Any], inputs: Sequence[str]
) -> tuple[str, str] | None:
    """A sentence on the input whose shape is wrong and on the one that the model takes, and what to
    do; None where no near shape helps.

    Args:
        program: function of the leaves of inputs and parameters.
        specs: their shapes and types, inputs first.
        inputs: names of the inputs.
    """
    sizes = [n for spec in specs[len(inputs) :] for n in spec.shape]
    for i, name in enumerate(inputs[:MOST_INPUTS]):
        for shape, what, remedy in _near(specs[i].shape, sizes):
            other = jax.ShapeDtypeStruct(shape, specs[i].dtype)
            if _traces(program, [*specs[:i], other, *specs[i + 1 :]]):
                return (
                    f"input {name} has shape {specs[i].shape}, and the model takes {shape}: {what}",
                    remedy,
                )
    return None


def _near(shape: Shape, sizes: Sequence[int]) -> Iterator[tuple[Shape, str, str]]:
    """Other shapes, the likeliest first: what would be wrong, and what to do."""
    channels = (*shape, 1), "the last axis is missing, of channels or features", "give x[..., None]"
    batch = (1, *shape), "the first axis is missing, the batch", "give x[None]"
    whole = "the first axis is one too many, the batch"
    one = shape[1:], whole, "give one sample (jq.from_equinox takes a batch with batched=True)"
    if len(shape) == 2 and shape[-1] in sizes:
        yield one
    if len(shape) < 4:
        yield from (batch, channels) if shape and shape[-1] in sizes else (channels, batch)
        both = "the axes of the batch and of the channels are missing"
        yield (1, *shape, 1), both, "give x[None, ..., None]"
    if len(shape) > 2:
        start = min(len(shape) - 3, 1)
        moved = (*shape[:start], *shape[start + 1 :], shape[start])
        first = "channels come first, and the model has them last"
        yield moved, first, f"give np.moveaxis(x, {start}, -1)"
        moved = (*shape[:start], shape[-1], *shape[start:-1])
        last = "channels come last, and the model has them first"
        yield moved, last, f"give np.moveaxis(x, -1, {start})"
        yield one
    for n in [n for n in dict.fromkeys(sizes) if shape and n != shape[-1]][:MOST_SIZES]:
        what = f"its last axis has {shape[-1]} elements, and the weights are for {n}"
        yield (*shape[:-1], n), what, "give it that shape, or other weights"
        if len(shape) < 4 and n > 1:
            missing = f"the last axis is missing, of {n} channels or features"
            yield (*shape, n), missing, "give it that shape"


def _traces(program: Callable[..., Any], specs: Sequence[Any]) -> bool:
    try:
        jax.eval_shape(program, *specs)
    except Exception:  # of the model, for a shape that nobody gave
        return False
    return True
