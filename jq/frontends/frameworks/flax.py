"""Flax: Linen modules beside their variables, and NNX modules that hold their own state."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from jq.base.errors import UserError
from jq.frontends.frameworks.base import Options, as_inputs, in_evaluation, model_of
from jq.frontends.model import Model


def from_linen(
    module: Any,
    variables: Any,
    example_inputs: Any = None,
    *,
    method: str = "__call__",
    call: Mapping[str, Any] | None = None,
    keys: Sequence[str] = (),
    **options: Unpack[Options],
) -> Model:
    """The model of a `flax.linen.Module` with its variables.

    Args:
        module: `from_linen(module, variables, inputs)`; `from_linen(bound, inputs)` for one that is
            bound to its variables (`module.bind`).
        variables: all collections: `{"params": ..., "batch_stats": ...}`. They are read alone.
        example_inputs: a tuple of inputs, or a single one; fixes shapes and types.
        method: what is called.
        call: keyword arguments of it. Evaluation mode is passed where it asks for one
            (`train`, `deterministic`, ...) and nothing is given.
        keys: streams of random numbers (`"noise"`) that become inputs, u32[2] each.
        options: fields of `jq.Model` (`calibration`, `evaluation`, `metric`, ...).

    Weights are called by their path: `params/head/kernel`.

    Raises:
        UserError: an argument does not fit, or the module cannot be called so.

    Example:
        ```python
        import flax.linen as nn

        dense, x = nn.Dense(8), jnp.ones((4, 16))
        model = jq.from_linen(dense, dense.init(jax.random.key(0), x), (x,))
        ```"""
    from flax import linen

    if not isinstance(module, linen.Module):
        raise UserError(f"a {type(module).__name__} is no flax.linen.Module")
    if example_inputs is None and module.scope is not None:
        example_inputs, (module, variables) = variables, module.unbind()
    if example_inputs is None or not isinstance(variables, Mapping):
        hint = "from_linen(module, variables, example_inputs), variables from module.init"
        raise UserError("a Linen module comes with its variables", hint=hint)
    inputs = as_inputs(example_inputs)
    keywords = in_evaluation(getattr(module, method), len(inputs), call or {})

    def fn(variables: Any, drawn: Mapping[str, Any], *args: Any) -> Any:
        return module.apply(variables, *args, method=method, rngs=dict(drawn), **keywords)

    return model_of(fn, variables, inputs, keys, options, module)


def from_nnx(
    module: Any,
    example_inputs: Any,
    *,
    method: str = "__call__",
    call: Mapping[str, Any] | None = None,
    keys: Sequence[str] = (),
    **options: Unpack[Options],
) -> Model:
    """The model of a `flax.nnx.Module`, as after `module.eval()`.

    The arguments that are not listed, and the errors, are those of `jq.from_linen`.

    Args:
        module: is copied: neither its mode nor its state changes.
        keys: streams of random numbers (`"noise"`) that become inputs, u32[2] each: the keys that
            `nnx.reseed` takes. Others keep the keys that the module holds.

    Weights are called by their path: `blocks/0/kernel`.

    Example:
        ```python
        from flax import nnx

        model = jq.from_nnx(nnx.Linear(16, 8, rngs=nnx.Rngs(0)), (np.ones((4, 16)),))
        ```"""
    from flax import nnx

    if not isinstance(module, nnx.Module):
        raise UserError(f"a {type(module).__name__} is no flax.nnx.Module")
    copy = nnx.clone(module)
    copy.eval()
    streams = {s.tag for _, s in nnx.iter_graph(copy) if isinstance(s, nnx.RngStream)}
    if missing := sorted(set(keys) - streams):
        what = f"the module has no random numbers called {missing[0]!r}"
        raise UserError(what, hint=f"it has {', '.join(sorted(streams)) or 'none'}")
    graph, state = nnx.split(copy)
    inputs = as_inputs(example_inputs)
    keywords = in_evaluation(getattr(copy, method), len(inputs), call or {})

    def fn(state: Any, drawn: Mapping[str, Any], *args: Any) -> Any:
        whole = nnx.merge(graph, state)
        if drawn:
            nnx.reseed(whole, **drawn)
        return getattr(whole, method)(*args, **keywords)

    return model_of(fn, state, inputs, keys, options, module)
