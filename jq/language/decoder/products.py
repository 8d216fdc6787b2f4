"""Products, norms, and the place of tokens in a sequence: all layers are made of these."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jq.language.decoder.config import Config


class _Lazy:
    """JAX, imported when it is used: who generates only asks layers for their shapes."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


if TYPE_CHECKING:
    import jax as jax

    jnp = jax.numpy
else:
    jax, jnp = _Lazy("jax"), _Lazy("jax.numpy")


def _of_jax(name: str) -> Callable[[jax.Array], jax.Array]:
    return lambda x: getattr(jax.nn, name)(x)


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": lambda x: jax.nn.silu(x),
    "gelu_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
    "relu2": lambda x: jax.nn.relu(x) ** 2,
    "linear": lambda x: x,
    **{n: _of_jax(n) for n in ("leaky_relu", "mish", "relu", "relu6", "sigmoid", "tanh")},
}
# While it is a function, every product multiplies what it gives for the weight, what it would be
# multiplied by, and the product's name.
INPUTS: ContextVar[Callable[[Any, Any, str], Any] | None] = ContextVar("INPUTS", default=None)
Turn = dict[str, "jax.Array"]  # rows of a layer's tables: `cos` and `sin` [n, pairs], `heat` [n]
State = tuple["jax.Array", ...]


@dataclass(frozen=True)
class Place:
    """The place of tokens [batch, n] in their sequences. Those beyond the first `count`, of the
    shape of `position`, are padding; None for none. `held` has the keys and values of the last
    layer with a window, and without, for layers without any."""

    position: jax.Array  # of the first, i32[], or i32[batch]
    turn: Turn  # rows of the tables that the layer turns queries and keys by; empty for none
    count: jax.Array | None = None
    extra: jax.Array | None = None  # what else comes into the layer [batch, n, width]
    held: dict[str, State] = field(default_factory=dict)


def dense(p: Any, x: jax.Array, name: str = "product") -> jax.Array:
    """x [..., in] times weight [out, in], whose columns may stand in an `order` of their own; times
    a `scale`, [] or [out], where there is one."""
    with jax.named_scope(name):
        if "order" in p:
            x = x.at[..., p["order"]].get(mode="promise_in_bounds")
        if (given := INPUTS.get()) is not None:
            x = given(p["weight"], x, name)
        y = x @ f32(p["weight"]).T
        y = y + p["bias"] if "bias" in p else y
        return y * p["scale"] if "scale" in p else y


def normed(config: Config, p: Any, x: jax.Array) -> jax.Array:
    """x [..., n] by its root mean square, or by its mean and deviation."""
    with jax.named_scope("norm"):
        if config.norm == "layer":
            x = x - x.mean(axis=-1, keepdims=True)
        y: jax.Array = unit(x, config.epsilon) * p["weight"]
        return y + p["bias"] if "bias" in p else y


def unit(x: jax.Array, epsilon: float) -> jax.Array:
    """x [..., n] divided by its root mean square."""
    y: jax.Array = x * jax.lax.rsqrt(jnp.square(x).mean(axis=-1, keepdims=True) + epsilon)
    return y


def behind(config: Config, p: Any, y: jax.Array) -> jax.Array:
    """The norm of a block's result, where the model has one."""
    return normed(config, p["norm_after"], y) if "norm_after" in p else y


def capped(x: jax.Array, cap: float) -> jax.Array:
    return jnp.tanh(x / cap) * cap if cap else x


def cut(x: jax.Array, first: Any, count: int, axis: int = 0) -> jax.Array:
    """`count` entries of an axis from one on."""
    return jax.lax.dynamic_slice_in_dim(x, first, count, axis)


def f32(x: Any) -> Any:
    return x.astype(jnp.float32)
