"""Equinox (modules are pytrees of one sample), Haiku (functions and parameters), Keras 3 on JAX."""

import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from jq.base.errors import UserError
from jq.frontends.frameworks.base import Options, as_inputs, in_evaluation, model_of
from jq.frontends.model import Model


def from_equinox(
    module: Any,
    example_inputs: Any,
    *,
    state: Any = None,
    batched: bool = False,
    method: str = "__call__",
    call: Mapping[str, Any] | None = None,
    keys: Sequence[str] = (),
    **options: Unpack[Options],
) -> Model:
    """The model of an `equinox.Module`, as after `equinox.nn.inference_mode`.

    The arguments that are not listed, and the errors, are those of `jq.from_linen`.

    Args:
        module: any module; arrays in it are its weights.
        state: what `equinox.nn.make_with_state` gave beside the module; it is read alone, and the
            results are those without the new state.
        batched: the inputs have a leading axis for samples, which the module does not know: it
            runs under `jax.vmap`, whose axis is called `batch`.
        keys: keyword arguments that are random keys (`"key"`); they become inputs, u32[2] each.

    Weights are called by their path (`mlp/layers/0/weight`), those of the state `state/...`.

    Example:
        ```python
        import equinox as eqx

        linear = eqx.nn.Linear(16, 8, key=jax.random.key(0))
        model = jq.from_equinox(linear, (jnp.ones((4, 16)),), batched=True)
        ```"""
    import equinox as eqx
    import jax

    from jq.base.from_jax import position
    from jq.frontends.tracing.inputs import leaf_names

    if not isinstance(module, eqx.Module):
        raise UserError(f"a {type(module).__name__} is no equinox.Module")
    held = (eqx.nn.inference_mode(module), state)
    arrays, rest = eqx.partition(held, eqx.is_array)
    paths, tree = jax.tree_util.tree_flatten_with_path(arrays)
    kinds = ["" if not position(path[0]) else "state/" for path, _ in paths]
    own = leaf_names([path[1:] for path, _ in paths], "weight")
    names = [kind + name for kind, name in zip(kinds, own, strict=True)]
    params = dict(zip(names, (leaf for _, leaf in paths), strict=True))
    inputs = as_inputs(example_inputs)
    count = len(inputs) + (state is not None)
    keywords = in_evaluation(getattr(module, method), count, call or {}, keys)

    def fn(params: Any, drawn: Mapping[str, Any], *args: Any) -> Any:
        leaves = jax.tree_util.tree_unflatten(tree, [params[name] for name in names])
        whole, kept = eqx.combine(leaves, rest)

        def one(*sample: Any) -> Any:
            after = () if kept is None else (kept,)
            found = getattr(whole, method)(*sample, *after, **drawn, **keywords)
            return found if kept is None else found[0]

        return jax.vmap(one, axis_name="batch")(*args) if batched else one(*args)

    return model_of(fn, params, inputs, keys, options, module)


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

    The arguments that are not listed, and the errors, are those of `jq.from_linen`.

    Args:
        transformed: with or without `haiku.without_apply_rng`.
        params: from its `init`.
        state: from its `init`, of `transform_with_state`; it is read alone, and the results are
            those without the new state.
        random: the function draws numbers: its key becomes an input `rng`, u32[2].

    Weights are called by module and name (`mlp/~/linear_0/w`), those of the state `state/...`.

    Example:
        ```python
        import haiku as hk

        net, x = hk.transform(lambda x: hk.Linear(8)(x)), jnp.ones((4, 16))
        model = jq.from_haiku(hk.without_apply_rng(net), net.init(jax.random.key(0), x), (x,))
        ```"""
    apply = getattr(transformed, "apply", None)
    if apply is None or not isinstance(params, Mapping):
        what = f"from_haiku of a {type(transformed).__name__} and a {type(params).__name__}"
        hint = "from_haiku(hk.transform(f), params, example_inputs), params from its init"
        raise UserError(what, hint=hint)
    stateful = "WithState" in type(transformed).__name__
    if stateful and state is None:
        raise UserError("a function with state needs it", hint="from_haiku(..., state=state)")
    inputs = as_inputs(example_inputs)
    takes_key = "rng" in inspect.signature(apply).parameters
    keywords = in_evaluation(apply, 1 + stateful + takes_key + len(inputs), call or {})
    both = {**params, **{f"state/{name}": kept for name, kept in (state or {}).items()}}

    def fn(both: Any, drawn: Mapping[str, Any], *args: Any) -> Any:
        of_state = {n.removeprefix("state/"): v for n, v in both.items() if n not in params}
        lead = [{name: both[name] for name in params}, *([of_state] if stateful else [])]
        key = [drawn.get("rng")] if takes_key else []
        found = apply(*lead, *key, *args, **keywords)
        return found[0] if stateful else found

    return model_of(fn, both, inputs, ["rng"] if random else [], options, transformed)


def from_keras(
    module: Any,
    example_inputs: Any,
    *,
    call: Mapping[str, Any] | None = None,
    **options: Unpack[Options],
) -> Model:
    """The model of a `keras.Model` or `keras.Layer`, with `training=False`.

    The arguments that are not listed, and the errors, are those of `jq.from_linen`.

    Args:
        module: of Keras 3 whose backend is JAX; one that is not built yet is built by these inputs.
        example_inputs: a tuple of inputs, or a single one; fixes shapes and types. Those of a
            functional model in the order of `model.inputs`, which also names them.

    Weights are called by their path: `sequential/dense/kernel`.

    Example:
        ```python
        import keras  # with KERAS_BACKEND=jax

        dense = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8)])
        model = jq.from_keras(dense, (np.ones((4, 16)),))
        ```"""
    from jq.frontends.tracing.inputs import unique

    keras: Any = sys.modules.get("keras")  # where a layer comes from
    if keras is None or not isinstance(module, keras.Layer):
        raise UserError(f"a {type(module).__name__} is no keras.Layer")
    if (backend := keras.backend.backend()) != "jax":
        hint = "set KERAS_BACKEND=jax in the environment before keras is imported"
        raise UserError(f"Keras runs on {backend}, not on JAX", hint=hint)
    inputs = as_inputs(example_inputs)
    declared = getattr(module, "inputs", None) or ()
    together = len(declared) == len(inputs) > 1  # a functional model takes a list
    if together:
        options.setdefault("input_names", [tensor.name for tensor in declared])
    keywords = in_evaluation(module.call, 1 if together else len(inputs), call or {})
    if not module.built:
        module(*inputs, **keywords)
    variables = [*module.trainable_variables, *module.non_trainable_variables]
    names = unique([variable.path for variable in variables])
    params = {n: v.value for n, v in zip(names, variables, strict=True)}
    count = len(module.trainable_variables)

    def fn(params: Any, _: Mapping[str, Any], *args: Any) -> Any:
        values = [params[name] for name in names]
        given = (list(args),) if together else args
        return module.stateless_call(values[:count], values[count:], *given, **keywords)[0]

    return model_of(fn, params, inputs, (), options, module)
