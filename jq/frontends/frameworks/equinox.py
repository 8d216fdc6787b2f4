"""Equinox: modules that are pytrees, of a single sample."""

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

    Args:
        module: any module; arrays in it are its weights.
        example_inputs: a tuple of inputs, or a single one; fixes shapes and types.
        state: what `equinox.nn.make_with_state` gave beside the module; it is read alone, and the
            results are those without the new state.
        batched: the inputs have a leading axis for samples, which the module does not know: it
            runs under `jax.vmap`, whose axis is called `batch`.
        method: what is called.
        call: keyword arguments of it.
        keys: keyword arguments that are random keys (`"key"`); they become inputs, u32[2] each.
        options: fields of `jq.Model` (`calibration`, `evaluation`, `metric`, ...).

    Weights are called by their path (`mlp/layers/0/weight`), those of the state `state/...`.

    Raises:
        UserError: an argument does not fit, or the module cannot be called so.

    Example:
        ```python
        import equinox as eqx

        linear = eqx.nn.Linear(16, 8, key=jax.random.key(0))
        model = jq.from_equinox(linear, (jnp.ones((4, 16)),), batched=True)
        ```
    """
    import equinox as eqx
    import jax

    from jq.base.from_jax import position
    from jq.frontends.tracing.leaves import leaf_names

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
