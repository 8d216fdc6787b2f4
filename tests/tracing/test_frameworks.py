"""Layer names of real Flax and Equinox models, wrapped as docs/tracing.md shows."""

from __future__ import annotations

import equinox as eqx
import flax.linen as nn
import jax
import numpy as np
from flax import nnx

X = np.random.default_rng(0).standard_normal((2, 8, 8, 3)).astype(np.float32)
HEAVY = ("stablehlo.dot_general", "stablehlo.convolution", "stablehlo.gather")


def names(program):
    ops = [op for op in program.walk() if op.operation.name in HEAVY]
    return [op.attributes["jq.name"].value for op in ops]


class NnxNet(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 4, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.blocks = nnx.List([nnx.Linear(4, 4, rngs=rngs) for _ in range(2)])
        self.attention = nnx.MultiHeadAttention(2, 4, rngs=rngs, decode=False)

    def __call__(self, x):
        x = self.dropout(jax.nn.relu(self.norm(self.conv(x)))).mean(1)
        for block in self.blocks:
            x = block(x)
        return self.attention(x)


def test_flax_nnx(check):
    model = NnxNet(nnx.Rngs(0))
    model.eval()
    graphdef, state = nnx.split(model)
    program = check(lambda state, x: nnx.merge(graphdef, state)(x), state, X)
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
    def __call__(self, x, _):
        return x + nn.relu(nn.Dense(8)(nn.LayerNorm()(x))), None


class LinenNet(nn.Module):
    @nn.compact
    def __call__(self, ids):
        embed = nn.Embed(30, 8, name="embed")
        stack = nn.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        x, _ = stack(name="layers")(embed(ids), None)
        x = nn.BatchNorm(use_running_average=True)(nn.remat(nn.Dense)(8, name="head")(x))
        return embed.attend(x)


def test_flax_linen(check):
    model, ids = LinenNet(), np.array([[3, 1, 4], [1, 5, 9]], np.int32)
    program = check(model.apply, model.init(jax.random.key(0), ids), ids)
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


class EquinoxNet(eqx.Module):
    conv: eqx.nn.Conv2d
    mlp: eqx.nn.MLP
    head: eqx.nn.Linear

    def __init__(self, key):
        a, b, c = jax.random.split(key, 3)
        self.conv = eqx.nn.Conv2d(3, 8, 3, key=a)
        self.mlp = eqx.nn.MLP(8, 8, 16, 1, key=b)
        self.head = eqx.nn.Linear(8, 4, key=c)

    def __call__(self, x):
        return self.head(self.mlp(self.conv(x).mean((1, 2))))


def test_equinox(check):
    params, static = eqx.partition(EquinoxNet(jax.random.key(0)), eqx.is_array)
    program = check(
        lambda params, x: jax.vmap(eqx.combine(params, static))(x), params, X.transpose(0, 3, 1, 2)
    )
    assert names(program) == [
        "conv/weight",
        "mlp/layers/0/weight",
        "mlp/layers/1/weight",
        "head/weight",
    ]


def test_value_is_a_name_where_it_has_siblings(check):
    class Attention(eqx.Module):
        key: jax.Array
        value: jax.Array

    params = {"a": Attention(X[0, 0], X[0, 1])}
    program = check(lambda p, x: x * p["a"].value + p["a"].key, params, X[0, 2])
    assert list(program.weights) == ["a/key", "a/value"]
