"""Haiku: transformed functions beside their parameters."""

import inspect
from collections.abc import Mapping
from typing import Any, Unpack

from jq.base.errors import UserError
from jq.frontends.frameworks.base import Options, as_inputs, in_evaluation, model_of
from jq.frontends.model import Model


def from_haiku(
    transformed: Any,
    params: Any,
    example_inputs: Any,
    *,
    state: Any = None,
    random: bool = False,
    call: Mapping[str, Any] | None = None,
    **options: Unpack[Options],
) -> Model:
    """The model of what `haiku.transform` or `haiku.transform_with_state` gave.

    Args:
        transformed: with or without `haiku.without_apply_rng`.
        params: from its `init`.
        example_inputs: a tuple of inputs, or a single one; fixes shapes and types.
        state: from its `init`, of `transform_with_state`; it is read alone, and the results are
            those without the new state.
        random: the function draws numbers: its key becomes an input `rng`, u32[2].
        call: keyword arguments of the function. Evaluation mode is passed where it asks for one
            (`is_training`, ...) and nothing is given.
        options: fields of `jq.Model` (`calibration`, `evaluation`, `metric`, ...).

    Weights are called by module and name (`mlp/~/linear_0/w`), those of the state `state/...`.

    Raises:
        UserError: an argument does not fit, or the module cannot be called so.

    Example:
        ```python
        import haiku as hk

        net, x = hk.transform(lambda x: hk.Linear(8)(x)), jnp.ones((4, 16))
        model = jq.from_haiku(hk.without_apply_rng(net), net.init(jax.random.key(0), x), (x,))
        ```
    """
    apply = getattr(transformed, "apply", None)
    if apply is None or not isinstance(params, Mapping):
        raise UserError(
            f"from_haiku of a {type(transformed).__name__} and a {type(params).__name__}",
            hint="from_haiku(hk.transform(f), params, example_inputs), params from its init",
        )
    stateful = "WithState" in type(transformed).__name__
    if stateful and state is None:
        raise UserError("a function with state needs it", hint="from_haiku(..., state=state)")
    inputs = as_inputs(example_inputs)
    takes_key = "rng" in inspect.signature(apply).parameters
    before = 1 + stateful + takes_key
    keywords = in_evaluation(apply, before + len(inputs), call or {})
    both = {**params, **{f"state/{name}": kept for name, kept in (state or {}).items()}}

    def fn(both: Any, drawn: Mapping[str, Any], *args: Any) -> Any:
        of_state = {n.removeprefix("state/"): v for n, v in both.items() if n not in params}
        lead = [{name: both[name] for name in params}, *([of_state] if stateful else [])]
        key = [drawn.get("rng")] if takes_key else []
        found = apply(*lead, *key, *args, **keywords)
        return found[0] if stateful else found

    return model_of(fn, both, inputs, ["rng"] if random else [], options, transformed)
