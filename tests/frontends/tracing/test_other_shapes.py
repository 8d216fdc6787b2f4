"""An image without its channels, its batch, or in another order: the input and both shapes."""

from __future__ import annotations

from collections.abc import Callable
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

KEY = jax.random.key(0)


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(10)(nn.relu(nn.Conv(8, (3, 3))(x)).mean((1, 2)))


class Nnx(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv, self.head = nnx.Conv(1, 8, (3, 3), rngs=rngs), nnx.Linear(8, 10, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.head(nnx.relu(self.conv(x)).mean((1, 2)))


def linen(x: Any) -> jq.Model:
    module = Linen()
    variables = module.init(jax.random.key(0), jnp.ones((1, 12, 12, 1)))
    return jq.from_linen(module, variables, (x,))


def nnx_model(x: Any) -> jq.Model:
    return jq.from_nnx(Nnx(nnx.Rngs(0)), (x,))


def haiku(x: Any) -> jq.Model:
    transformed = hk.transform(lambda x: hk.Linear(10)(hk.Conv2D(8, 3)(x).mean((1, 2))))
    return jq.from_haiku(transformed, transformed.init(KEY, jnp.ones((1, 12, 12, 1))), (x,))


def plain(x: Any) -> jq.Model:
    def fn(p: Any, x: Any) -> Any:
        dims = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, p["w"], (1, 1), "SAME", dimension_numbers=dims)
        return y.mean((1, 2)) @ p["v"]

    shapes = {"w": (3, 3, 1, 8), "v": (8, 10)}
    return jq.Model(fn, {k: np.ones(s, np.float32) for k, s in shapes.items()}, (x,))


@pytest.mark.parametrize("model", [linen, nnx_model, haiku, plain])
@pytest.mark.parametrize(
    ("shape", "wanted", "said"),
    [
        ((144,), (1, 12, 12, 1), "it is flat"),
        ((1, 144), (1, 12, 12, 1), "it is flat"),
        ((4, 144), (4, 12, 12, 1), "it is flat"),
        ((1, 12, 12), (1, 12, 12, 1), "the last axis is missing"),
        ((12, 12), (1, 12, 12, 1), "batch and of the channels are missing"),
        ((12, 12, 1), (1, 12, 12, 1), "the first axis is missing"),
        ((1, 1, 12, 12), (1, 12, 12, 1), "channels come first"),
        ((1, 12, 12, 3), (1, 12, 12, 1), "last axis has 3 elements, and the weights are for 1"),
    ],
)
def test_images_of_other_shapes(
    model: Callable[[Any], jq.Model], shape: tuple[int, ...], wanted: Any, said: str
) -> None:
    with pytest.raises(jq.UserError) as found:
        jq.trace(model(np.ones(shape, np.float32)))
    assert f"input arg0 has shape {shape}, and the model takes {wanted}" in str(found.value)
    assert said in str(found.value)


@pytest.mark.parametrize(
    ("module", "shape", "wanted", "said"),
    [
        (eqx.nn.Linear(16, 8, key=KEY), (4, 16), (16,), "batched=True"),
        (eqx.nn.Conv2d(3, 8, 3, key=KEY), (12, 12, 3), (3, 12, 12), "np.moveaxis(x, -1, 0)"),
        (eqx.nn.Conv2d(3, 8, 3, key=KEY), (2, 3, 12, 12), (3, 12, 12), "batched=True"),
        (eqx.nn.Conv2d(1, 8, 3, key=KEY), (12, 12), (1, 12, 12), "x[None]"),
    ],
)
def test_equinox_takes_one_sample_with_channels_first(
    module: Any, shape: tuple[int, ...], wanted: tuple[int, ...], said: str
) -> None:
    with pytest.raises(jq.UserError) as found:
        jq.trace(jq.from_equinox(module, (np.ones(shape, np.float32),)))
    assert f"has shape {shape}, and the model takes {wanted}" in str(found.value)
    assert said in str(found.value)


class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(10)(nn.relu(nn.Dense(32)(x)))


class Asserting(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        assert x.ndim == 4
        return nn.Dense(10)(nn.Conv(8, (3, 3))(x).mean((1, 2)))


class Tokens(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        _, length = x.shape
        places = self.param("places", nn.initializers.normal(), (1, 24, 16))
        return nn.Dense(10)(nn.Embed(50, 16)(x) + places[:, :length])


class Sequence(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(3)(nn.Conv(8, (3,))(x).mean(1))


FLOATS, TOKENS = np.float32, np.int32


@pytest.mark.parametrize(
    ("module", "right", "kind", "shape", "wanted", "said"),
    [
        (Mlp(), (1, 144), FLOATS, (1, 12, 12, 1), (1, 144), "it is not flat"),
        (Mlp(), (1, 144), FLOATS, (12, 12), (1, 144), "it is not flat"),
        (Mlp(), (1, 144), FLOATS, (5, 1, 12, 12), (5, 144), "it is not flat"),
        (Asserting(), (1, 8, 8, 3), FLOATS, (8, 8, 3), (1, 8, 8, 3), "missing, the batch"),
        (Asserting(), (1, 8, 8, 3), FLOATS, (192,), (1, 8, 8, 3), "it is flat"),
        (Asserting(), (1, 8, 8, 3), FLOATS, (3, 8, 8), (1, 8, 8, 3), "np.moveaxis(x, 0, -1)[None]"),
        (Tokens(), (1, 12), TOKENS, (12,), (1, 12), "missing, the batch"),
        (Tokens(), (1, 12), TOKENS, (1, 12, 1), (1, 12), "the last axis is one too many"),
        (Sequence(), (1, 20, 4), FLOATS, (1, 80), (1, 20, 4), "it is flat"),
        (Sequence(), (1, 20, 4), FLOATS, (4, 20), (1, 20, 4), "channels come first"),
        (Sequence(), (1, 20, 4), FLOATS, (1, 4, 20), (1, 20, 4), "channels come first"),
    ],
)
def test_what_has_the_right_elements_is_told_how_to_lay_them_out(
    module: Any, right: Any, kind: Any, shape: tuple[int, ...], wanted: Any, said: str
) -> None:
    variables = module.init(KEY, np.ones(right, kind))
    with pytest.raises(jq.UserError) as found:
        jq.trace(jq.from_linen(module, variables, (np.ones(shape, kind),)))
    assert f"input arg0 has shape {shape}, and the model takes {wanted}" in str(found.value)
    assert said in str(found.value)


def test_two_inputs_without_their_batch_are_told_together() -> None:
    def fn(p: Any, x: Any, y: Any) -> Any:
        assert x.ndim == y.ndim == 2
        return x @ p + y @ p

    model = jq.Model(fn, np.ones((4, 4), np.float32), (np.ones(4, np.float32),) * 2)
    with pytest.raises(jq.UserError, match=r"inputs arg0, arg1: the batch is missing.*x\[None\]"):
        jq.trace(model)


def test_the_second_input_is_named() -> None:
    model = jq.Model(
        lambda p, x, image: x @ p + image.sum((1, 2)) @ p,
        np.ones((4, 4), np.float32),
        (np.ones((1, 4), np.float32), np.ones((8, 8, 4), np.float32)),
        input_names=("x", "image"),
    )
    with pytest.raises(jq.UserError, match=r"input image has shape \(8, 8, 4\).*\(1, 8, 8, 4\)"):
        jq.trace(model)


def test_what_no_shape_helps_is_told_as_jax_does() -> None:
    def fn(p: Any, x: Any) -> Any:
        raise ValueError("never")

    with pytest.raises(jq.UserError, match="cannot be traced: ValueError: never"):
        jq.trace(jq.Model(fn, {}, (np.ones((2, 2), np.float32),)))
