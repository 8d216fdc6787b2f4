"""Errors in a model while JAX traces it, explained to the model's author.

An image comes without its channels or its batch, flat, with its channels first, or with others than
the weights have. JAX and Flax then speak of a kernel or broadcasting inside. Here the model is
traced with the nearest other shapes, one input at a time: the first that works is named."""

import inspect
import math
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jq.base.errors import UserError
from jq.base.from_jax import of_mesh
from jq.frontends.model import Model
from jq.frontends.tracing.inputs import named_leaves

# What to write where a model needs the value of what is known only when the program runs.
INSTEAD: dict[type[Exception], str] = {
    jax.errors.TracerArrayConversionError: "compute with jax.numpy, not with NumPy",
    jax.errors.TracerBoolConversionError: "choose with jnp.where or jax.lax.cond, not with if",
    jax.errors.TracerIntegerConversionError: "index with arrays of jax.numpy",
    jax.errors.UnexpectedTracerError: "return it, or compute it again in every call",
    jax.errors.ConcretizationTypeError: "sizes and loops must not depend on values of the inputs",
}
_LIBRARIES = (str(Path(jax.__file__).parent), str(Path(__file__).parents[2]))  # JAX, and us


def of_shapes(error: BaseException) -> bool:
    """True for an error that an input of another shape may help: libraries have their own, and
    models assert shapes, or read a size that is not there."""
    return isinstance(error, Exception) and not isinstance(error, (UserError, *INSTEAD))


def cannot_trace(
    error: BaseException, model: Model, shape: tuple[str, str] | None = None
) -> UserError:
    """JAX's own first line, with the place in the user's code that it came from; `shape`: what is
    wrong with an input's shape, and what to do, where that is known."""
    if isinstance(error, UserError):
        return error
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = " ".join(lines[: 1 + lines[0].endswith(":")]) if lines else "no message"
    first = first.rpartition(" traced for jit ")[2]  # before it is a function of ours
    said, place = f"{type(error).__name__}: {first}", _place(error, model)
    if shape is not None:
        return UserError(f"{shape[0]} ({said})", location=place, hint=shape[1])
    hint = _hint(error, model)
    return UserError(f"the model cannot be traced: {said}", location=place, hint=hint)


def _place(error: BaseException, model: Model) -> str | None:
    """The last line of the traceback that is the user's; else where the model's function is."""
    frames = traceback.extract_tb(error.__traceback__)
    if own := [f for f in frames if not f.filename.startswith(_LIBRARIES)]:
        return f"{own[-1].filename}:{own[-1].lineno}"
    code = getattr(inspect.unwrap(model.fn), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else None


def _hint(error: BaseException, model: Model) -> str | None:
    try:
        inspect.signature(model.fn).bind(model.params, *model.example_inputs)
    except (TypeError, ValueError) as wrong:
        if isinstance(error, TypeError) and isinstance(wrong, TypeError):  # else built into Python
            given = ", ".join(["params", *(f"input {i}" for i in range(len(model.example_inputs)))])
            return (
                f"it is called as fn({given}); fix other arguments: functools.partial(fn, name=...)"
            )
    hint = next((text for kind, text in INSTEAD.items() if isinstance(error, kind)), None)
    hint = hint or of_mesh(error)
    if hint and (names := _settings(model)):
        own = f"{', '.join(names)}: a Python number there is traced as an array"
        return f"{hint}; {own}, so fix a setting in the function: functools.partial(fn, name=...)"
    return hint


def _settings(model: Model) -> list[str]:
    """Names of inputs and parameters that are Python's own bools and integers."""
    inputs = named_leaves(tuple(model.example_inputs), "arg")
    leaves = inputs + named_leaves(model.params, "params")
    return [name for name, leaf in leaves if isinstance(leaf, int)]


Shape = tuple[int, ...]
MOST_INPUTS, MOST_SIZES = 4, 6  # what is tried takes about as long as tracing, each time
BATCH = "the first axis is missing, the batch"
BOTH = "the axes of the batch and of the channels are missing"
ONE = "give one sample (jq.from_equinox takes a batch with batched=True)"


def expected(
    program: Callable[..., Any], specs: Sequence[Any], inputs: Sequence[str]
) -> tuple[str, str] | None:
    """A sentence on the input whose shape is wrong and on the one that the model takes, and what to
    do; None where no near shape helps, or JAX takes the shapes and fails later.

    Args:
        program: function of the leaves of inputs and parameters.
        specs: their shapes and types, inputs first.
        inputs: names of the inputs."""
    if _traces(program, specs):
        return None
    count = len(inputs)
    weights = [spec.shape for spec in specs[count:]]
    for i, name in enumerate(inputs[:MOST_INPUTS]):
        shape, whole = specs[i].shape, jnp.issubdtype(specs[i].dtype, jnp.integer)
        for other, what, remedy in _near(shape, weights, whole):
            if _traces(program, [*specs[:i], _as(specs[i], other), *specs[i + 1 :]]):
                said = f"input {name} has shape {shape}, and the model takes {other}: {what}"
                return said, remedy
    batches = [_as(spec, (1, *spec.shape)) for spec in specs[:count]]
    if count > 1 and _traces(program, [*batches, *specs[count:]]):
        return f"inputs {', '.join(inputs)}: the batch is missing, their first axis", "give x[None]"
    return None


def _as(spec: Any, shape: Shape) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, spec.dtype)


def _near(shape: Shape, weights: Sequence[Shape], whole: bool) -> Iterator[tuple[Shape, str, str]]:
    """Other shapes, what would be wrong, and what to do; the likeliest first, and those that have
    other elements last. `whole`: of integers, which have no channels."""
    sizes = sorted(dict.fromkeys(n for w in weights for n in w), key=lambda n: n == 1)
    images = any(len(w) > 3 for w in weights)
    features = whole or shape[-1:] in [(n,) for n in sizes]
    batch, both = ((1, *shape), BATCH, "give x[None]"), (1, *shape, 1)
    channels = (*shape, 1), "the last axis is missing, of channels or features", "give x[..., None]"
    if len(shape) == 2 and 1 < shape[0] in sizes:
        yield from _moved(shape)
    one = shape[1:], "the first axis is one too many, the batch", ONE
    if len(shape) == 2 and features:
        yield one
    if not features:
        yield from _unfolded(shape, sizes, images)
    if len(shape) < 4:
        yield from (batch, channels) if features else (channels, batch)
        yield both, BOTH, "give x[None, ..., None]"
    if len(shape) == 1:
        yield (1, 1, *shape), f"{BATCH}, and that of positions", "give x[None, None]"
    if len(shape) > 2:
        yield from _moved(shape)
    if shape[-1:] == (1,):
        yield shape[:-1], "the last axis is one too many", "give x[..., 0]"
    if len(shape) > 1:
        yield one
        elements = math.prod(shape)
        for flat in ((shape[0], math.prod(shape[1:])), (1, elements), (elements,)):
            if flat[-1] in sizes:
                yield flat, "it is not flat", f"give x.reshape{flat}"
    if features:
        yield from _unfolded(shape, sizes, images)
    for n in [n for n in sizes if shape and n != shape[-1]][:MOST_SIZES]:
        what = f"its last axis has {shape[-1]} elements, and the weights are for {n}"
        yield (*shape[:-1], n), what, "give it that shape, or other weights"
        if len(shape) < 4 and n > 1:
            missing = f"the last axis is missing, of {n} channels or features"
            yield (*shape, n), missing, "give it that shape"
            yield (1, *shape, n), BOTH, "give it that shape"


def _moved(shape: Shape) -> Iterator[tuple[Shape, str, str]]:
    """Channels first in place of last, and the other way round, of a batch and of one sample."""
    for start in {2: (0,), 3: (1, 0)}.get(len(shape), (1,) if len(shape) > 3 else ()):
        for source, to, what in (
            (start, -1, "channels come first, and the model has them last"),
            (-1, start, "channels come last, and the model has them first"),
        ):
            other = np.moveaxis(np.broadcast_to(0, shape), source, to).shape
            if other != shape:
                remedy = f"give np.moveaxis(x, {source}, {to})"
                yield other, what, remedy
                if start == 0:
                    yield (1, *other), f"{what}; {BATCH}", f"{remedy}[None]"


def _unfolded(shape: Shape, sizes: Sequence[int], images: bool) -> Iterator[tuple[Shape, str, str]]:
    """Images, or positions with features, of a vector or of a batch of vectors."""
    if len(shape) not in (1, 2):
        return
    batch, elements = shape[:-1] or (1,), shape[-1]
    found: list[list[Shape]] = [[], []]
    for n in [n for n in sizes if 0 < n < elements and elements % n == 0][:MOST_SIZES]:
        rows, side = elements // n, math.isqrt(elements // n)
        found[not images] += [(*batch, rows, n), (*batch, n, rows)]
        if side > 1 and side * side == rows:
            found[images] += [(*batch, side, side, n), (*batch, n, side, side)]
            found[images] += [(n, side, side)] if len(shape) == 1 else []
    for other in [*found[1], *found[0]]:
        yield other, "it is flat", f"give x.reshape{other}"


def _traces(program: Callable[..., Any], specs: Sequence[Any]) -> bool:
    try:
        jax.eval_shape(program, *specs)
    except Exception:  # of the model, for a shape that nobody gave
        return False
    return True
