"""Random keys as inputs, and what is said of a module that is given in another way."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jq
from jq.base.errors import UserError

X = np.arange(6, dtype=np.float32).reshape(2, 3)
KEY = np.asarray(jax.random.key_data(jax.random.key(7)))


class NnxNoise(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.noise = rngs

    def __call__(self, x: Any) -> Any:
        return x + jax.random.normal(self.noise.noise(), x.shape)


class LinenNoise(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return x + jax.random.normal(self.make_rng("noise"), x.shape)


class EquinoxNoise(eqx.Module):
    def __call__(self, x: Any, *, key: Any) -> Any:
        return x + jax.random.normal(key, x.shape)


def haiku_noise(x: Any) -> Any:
    return x + jax.random.normal(hk.next_rng_key(), x.shape)


def drawing() -> list[tuple[Any, Any]]:
    """Models that draw numbers, and what their modules give with the key 7."""
    key = jax.random.key(7)
    nnx_module = NnxNoise(nnx.Rngs(noise=1))
    nnx.reseed(nnx_module, noise=key)
    function = hk.transform(haiku_noise)
    return [
        (jq.from_nnx(NnxNoise(nnx.Rngs(noise=1)), X, keys=["noise"]), nnx_module(X)),
        (
            jq.from_linen(LinenNoise(), {}, X, keys=["noise"]),
            LinenNoise().apply({}, X, rngs={"noise": key}),
        ),
        (jq.from_equinox(EquinoxNoise(), X, keys=["key"]), EquinoxNoise()(X, key=key)),
        (jq.from_haiku(function, {}, X, random=True), function.apply({}, key, X)),
    ]


def test_keys_are_inputs(same: Any) -> None:
    for model, expected in drawing():
        program = same(model, expected, X, KEY)
        assert [spec.name for spec in program.inputs] == ["arg0", program.inputs[1].name]
        assert program.inputs[1].shape == (2,)


def test_a_key_of_jax_is_an_input_of_any_model() -> None:
    model = jq.Model(lambda p, x, k: x + jax.random.uniform(k, x.shape), {}, (X, jnp.asarray(KEY)))
    assert jq.trace(model).program.inputs[1].dtype == "uint32"


def modules() -> list[tuple[Any, str]]:
    import keras

    return [
        (nnx.Linear(3, 2, rngs=nnx.Rngs(0)), "jq.from_nnx"),
        (nn.Dense(2), "jq.from_linen"),
        (eqx.nn.Linear(3, 2, key=jax.random.key(0)), "jq.from_equinox"),
        (keras.layers.Dense(2), "jq.from_keras"),
        (hk.transform(haiku_noise), "jq.from_haiku"),
    ]


def test_a_module_is_told_what_takes_it() -> None:
    for module, taker in modules():
        for give in (lambda m: jq.Model(m, {}, (X,)), jq.trace):
            with pytest.raises(UserError) as error:
                give(module)
            assert taker in str(error.value)


def test_functions_of_equinox_are_functions() -> None:
    model = jq.Model(eqx.filter_jit(lambda p, x: x * p["a"]), {"a": np.float32(2)}, (X,))
    assert jq.trace(model).program.inputs[0].shape == (2, 3)


def test_refusals() -> None:
    with pytest.raises(UserError, match=r"no flax\.nnx\.Module"):
        jq.from_nnx(nn.Dense(2), X)
    with pytest.raises(UserError, match=r"no flax\.linen\.Module"):
        jq.from_linen(eqx.nn.Identity(), {}, X)
    with pytest.raises(UserError, match=r"no equinox\.Module"):
        jq.from_equinox(nn.Dense(2), X)
    with pytest.raises(UserError, match=r"no keras\.Layer"):
        jq.from_keras(nn.Dense(2), X)
    with pytest.raises(UserError, match="from_haiku of a function"):
        jq.from_haiku(haiku_noise, {}, X)
    with pytest.raises(UserError, match="no random numbers called 'drop'"):
        jq.from_nnx(NnxNoise(nnx.Rngs(noise=1)), X, keys=["drop"])
    with pytest.raises(UserError, match="comes with its variables"):
        jq.from_linen(nn.Dense(2), (X,))
    with pytest.raises(UserError, match="needs it"):
        jq.from_haiku(hk.transform_with_state(haiku_noise), {}, X)
    with pytest.raises(UserError, match=r"unknown argument 'train'; .*call=\{NAME: VALUE\}"):
        jq.from_equinox(eqx.nn.Identity(), X, train=False)  # type: ignore[call-arg]
    with pytest.raises(UserError, match=r"with 1 input: missing .*'key'; .*call=\{NAME: VALUE\}"):
        jq.from_equinox(EquinoxNoise(), X)
    with pytest.raises(UserError, match="with 2 inputs: too many positional arguments"):
        jq.from_nnx(NnxNoise(nnx.Rngs(noise=1)), (X, X))
    with pytest.raises(UserError, match="unexpected keyword argument 'training'"):
        jq.from_nnx(NnxNoise(nnx.Rngs(noise=1)), X, call={"training": False})
