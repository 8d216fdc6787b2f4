"""Keras 3 on JAX."""

from collections.abc import Mapping
from typing import Any, Unpack

from jq.base.errors import UserError
from jq.frontends.frameworks.base import Options, as_inputs, in_evaluation, model_of
from jq.frontends.model import Model


def from_keras(
    module: Any,
    example_inputs: Any,
    *,
    call: Mapping[str, Any] | None = None,
    **options: Unpack[Options],
) -> Model:
    """The model of a `keras.Model` or `keras.Layer`, with `training=False`.

    Args:
        module: of Keras 3 whose backend is JAX; one that is not built yet is built by these inputs.
        example_inputs: a tuple of inputs, or a single one; fixes shapes and types. Those of a
            functional model in the order of `model.inputs`, which also names them.
        call: keyword arguments of the call.
        options: fields of `jq.Model` (`calibration`, `evaluation`, `metric`, ...).

    Weights are called by their path: `sequential/dense/kernel`.

    Raises:
        UserError: an argument does not fit, or the module cannot be called so.

    Example:
        ```python
        import keras  # with KERAS_BACKEND=jax

        dense = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8)])
        model = jq.from_keras(dense, (np.ones((4, 16)),))
        ```
    """
    import keras

    from jq.frontends.tracing.leaves import unique

    if not isinstance(module, keras.Layer):
        raise UserError(f"a {type(module).__name__} is no keras.Layer")
    if (backend := keras.backend.backend()) != "jax":
        raise UserError(
            f"Keras runs on {backend}, not on JAX",
            hint="set KERAS_BACKEND=jax in the environment before keras is imported",
        )
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
