"""Errors in a model while JAX traces it, explained to the model's author."""

import inspect
import traceback
from pathlib import Path
from typing import Any

import jax

from jq.base.errors import UserError
from jq.base.from_jax import of_mesh
from jq.frontends.model import Model
from jq.frontends.tracing.leaves import leaf_names

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
