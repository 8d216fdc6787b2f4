"""Shared parts of the modules of all frameworks: inputs, evaluation mode, keys, and the model."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from jq.base.errors import UserError, known
from jq.frontends.model import Batches, Model

# Arguments that say whether a module is being trained, and what they are when it is not.
EVALUATION = {
    "train": False,
    "training": False,
    "is_training": False,
    "deterministic": True,
    "inference": True,
    "use_running_average": True,
}
KEY = np.zeros(2, np.uint32)  # an example of a random key's data


class Options(TypedDict, total=False):
    """The arguments that every `from_*` passes on to `jq.Model`; see there."""

    calibration: Batches
    evaluation: Batches
    labels: Any
    metric: Callable[[Any, Any], Mapping[str, float]] | None
    name: str
    input_names: Sequence[str] | None
    x64: bool


def as_inputs(example: Any) -> tuple[Any, ...]:
    """The tuple of inputs; what is no tuple or list is a single input."""
    return tuple(example) if isinstance(example, tuple | list) else (example,)


def in_evaluation(
    function: Callable[..., Any], count: int, given: Mapping[str, Any], keys: Sequence[str] = ()
) -> dict[str, Any]:
    """The keyword arguments of a call with `count` inputs: the given ones, and evaluation mode
    where `function` has an argument for it that nothing fills; `keys` are passed besides.

    Raises:
        UserError: that is no call of `function`."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return dict(given)
    positional = [
        p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    filled = {p.name for p in positional[:count]}
    modes = {k: v for k, v in EVALUATION.items() if k in parameters and k not in filled}
    keywords = modes | dict(given)
    try:
        inspect.signature(function).bind(*[None] * count, **keywords, **dict.fromkeys(keys))
    except TypeError as error:
        what = f"the module cannot be called with {count} input{'s' * (count != 1)}: {error}"
        hint = "other arguments of its call are given as call={NAME: VALUE}"
        raise UserError(what, hint=hint) from None
    return keywords


def model_of(
    fn: Callable[..., Any],
    params: Any,
    inputs: tuple[Any, ...],
    keys: Sequence[str],
    options: Options,
    module: Any,
) -> Model:
    """The model of `fn(params, keys, *inputs)`, with `keys` a dict of random keys.

    Each key is another input after the given ones, u32[2] (`jax.random.key_data`)."""
    import jax

    count = len(inputs)

    def call(params: Any, *args: Any) -> Any:
        data = zip(keys, args[count:], strict=True)
        return fn(params, {n: jax.random.wrap_key_data(key) for n, key in data}, *args[:count])

    names = options.get("input_names")
    if keys and names is not None:
        names = [*names, *keys] if len(names) == count else names
    elif keys:
        names = [*(f"arg{i}" for i in range(count)), *keys]
    options = {**options, "input_names": names}
    options.setdefault("name", type(module).__name__)
    if unknown := sorted(set(options) - set(Options.__annotations__)):
        raise UserError(
            f"unknown argument {unknown[0]!r}",
            hint="arguments of the module's own call are given as call={NAME: VALUE} (evaluation "
            f"mode is set without them); {known(unknown[0], Options.__annotations__)}",
        )
    return Model(call, params, (*inputs, *(KEY for _ in keys)), **options)
