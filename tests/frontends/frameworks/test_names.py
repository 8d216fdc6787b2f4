"""Real Flax, Equinox, Keras and Haiku models: names of layers, and the results they had."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

import jq

X = np.random.default_rng(0).standard_normal((2, 8, 8, 3)).astype(np.float32)
KEY = jax.random.key(0)
HEAVY = ("stablehlo.dot_general", "stablehlo.convolution", "stablehlo.gather")


def names(program: Any) -> list[str]:
    ops = [op for op in program.walk() if op.operation.name in HEAVY]
    return [op.attributes["jq.name"].value for op in ops]


class NnxNet(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(3, 4, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.blocks = nnx.List([nnx.Linear(4, 4, rngs=rngs) for _ in range(2)])
        self.attention = nnx.MultiHeadAttention(2, 4, rngs=rngs, decode=False)

    def __call__(self, x: Any) -> Any:
        x = self.dropout(jax.nn.relu(self.norm(self.conv(x)))).mean(1)
        for block in self.blocks:
            x = block(x)
        return self.attention(x)


def test_flax_nnx(same: Any) -> None:
    module = NnxNet(nnx.Rngs(0))
    module.norm.mean[...] = jnp.arange(4.0)
    model = jq.from_nnx(module, (X,), name="net")
    assert not module.dropout.deterministic  # it is still being trained
    module.eval()
    program = same(model, module(X), X)
    assert model.name == "net"
    assert names(program) == [
        "conv/kernel",
        "blocks/0/kernel",
        "blocks/1/kernel",
        "attention/query/kernel",
        "attention/key/kernel",
        "attention/value/kernel",
        "BTNH,BSNH->BNTS/dot_general",
        "BNTS,BSNH->BTNH/dot_general",
        "attention/out/kernel",
    ]
    assert "norm/mean" in program.weights
    assert not any("dropout" in name for name in program.weights)


class Block(nn.Module):
    @nn.compact
    def __call__(self, x: Any, _: Any) -> Any:
        return x + nn.relu(nn.Dense(8)(nn.LayerNorm()(x))), None


class LinenNet(nn.Module):
    @nn.compact
    def __call__(self, ids: Any, train: bool) -> Any:
        embed = nn.Embed(30, 8, name="embed")
        stack = nn.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        x, _ = stack(name="layers")(embed(ids), None)
        x = nn.Dropout(0.5, deterministic=not train)(x)
        x = nn.BatchNorm(use_running_average=not train)(nn.remat(nn.Dense)(8, name="head")(x))
        return embed.attend(x)


def test_flax_linen(same: Any) -> None:
    module, ids = LinenNet(), np.array([[3, 1, 4], [1, 5, 9]], np.int32)
    variables = module.init(KEY, ids, train=False)
    expected = module.apply(variables, ids, train=False)
    program = same(jq.from_linen(module, variables, (ids,)), expected, ids)
    assert names(program) == [
        "params/embed/embedding",
        "params/layers/Dense_0/kernel",
        "params/head/kernel",
        "params/embed/embedding#2",
    ]
    scopes = {
        op.attributes["jq.scope"].value for op in program.walk() if op.operation.name in HEAVY
    }
    assert "LinenNet/head/dot_general" in scopes
    assert names(jq.trace(jq.from_linen(module.bind(variables), ids)).program) == names(program)


class EquinoxNet(eqx.Module):
    conv: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    mlp: eqx.nn.MLP

    def __init__(self, key: Any) -> None:
        a, b = jax.random.split(key)
        self.conv = eqx.nn.Conv2d(3, 8, 3, key=a)
        self.norm = eqx.nn.BatchNorm(8, "batch", mode="ema")
        self.dropout = eqx.nn.Dropout(0.5)
        self.mlp = eqx.nn.MLP(8, 4, 16, 1, key=b)

    def __call__(self, x: Any, state: Any, key: Any = None) -> Any:
        x, state = self.norm(self.conv(x), state)
        return self.mlp(self.dropout(x.mean((1, 2)), key=key)), state


def test_equinox(same: Any) -> None:
    module, state = eqx.nn.make_with_state(EquinoxNet)(KEY)
    images = X.transpose(0, 3, 1, 2)
    run = jax.vmap(eqx.nn.inference_mode(module), axis_name="batch", in_axes=(0, None))
    model = jq.from_equinox(module, images, state=state, batched=True)
    program = same(model, run(images, state)[0], images)
    assert names(program) == ["conv/weight", "mlp/layers/0/weight", "mlp/layers/1/weight"]
    assert any(name.startswith("state/") for name in program.weights)


def test_keras(same: Any) -> None:
    import keras

    left, right = keras.Input((8, 3), name="left"), keras.Input((8, 3), name="right")
    y = keras.layers.Dense(5, name="head")(keras.layers.Dropout(0.5)(left + right))
    module = keras.Model([left, right], keras.layers.BatchNormalization(name="norm")(y))
    inputs = (X[0], X[1])
    program = same(jq.from_keras(module, inputs), module([*inputs], training=False), *inputs)
    assert names(program) == ["head/kernel"]
    assert [spec.name for spec in program.inputs] == ["left", "right"]
    assert "norm/moving_mean" in program.weights


def test_haiku(same: Any) -> None:
    def forward(x: Any, is_training: bool) -> Any:
        y = hk.BatchNorm(True, True, 0.9, name="norm")(hk.Linear(5, name="head")(x), is_training)
        return hk.dropout(hk.next_rng_key(), 0.5, y) if is_training else y

    function = hk.transform_with_state(forward)
    params, state = function.init(KEY, X, is_training=True)
    expected, _ = function.apply(params, state, None, X, is_training=False)
    program = same(jq.from_haiku(function, params, X, state=state), expected, X)
    assert names(program) == ["head/w"]
    assert "state/norm/~/mean_ema/average" in program.weights
    plain = hk.without_apply_rng(hk.transform(lambda x: hk.Linear(5)(x)))
    params = plain.init(KEY, X)
    same(jq.from_haiku(plain, params, (X,)), plain.apply(params, X), X)


def test_value_is_a_name_where_it_has_siblings() -> None:
    class Attention(eqx.Module):
        key: jax.Array
        value: jax.Array

        def __call__(self, x: Any) -> Any:
            return x * self.value + self.key

    module = Attention(X[0, 0], X[0, 1])
    assert list(jq.trace(jq.from_equinox(module, X[0, 2])).program.weights) == ["key", "value"]
