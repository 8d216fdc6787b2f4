"""Several residual streams (AltUp; Baykal et al. 2023), of which a layer computes with the first:
what it would make of all is predicted before, and corrected behind it. Beside the mixer stands a
product of low rank (LAuReL; Menghani et al. 2024).
"""

from typing import Any

import jax
import jax.numpy as jnp

from jq.language.decoder.config import Config
from jq.language.decoder.products import dense, normed

_LEAST = 1e-5  # of the mean square of a stream


def spread(p: Any, x: jax.Array) -> jax.Array:
    """Streams [count, batch, n, hidden]: x, and products of x as large as x."""
    return jnp.stack([x, *(_as_large(x, dense(p[str(i)], x)) for i in range(len(p)))])


def gathered(p: Any, streams: jax.Array) -> jax.Array:
    """Their mean, each through a product of its own, as large as the first."""
    first = streams[0]
    rest = [_as_large(first, dense(p[str(i)], streams[i + 1])) for i in range(len(p))]
    return jnp.stack([first, *rest]).mean(axis=0)


def _as_large(x: jax.Array, y: jax.Array) -> jax.Array:
    wanted, found = (jnp.square(t).mean(axis=-1, keepdims=True) for t in (x, y))
    return y * jnp.sqrt(wanted) / jnp.sqrt(jnp.maximum(found, _LEAST))


def predicted(config: Config, p: Any, streams: jax.Array) -> jax.Array:
    """A guess at what the layer makes of the streams, by what is in the first of them."""
    count = len(streams)
    mixes = dense(p["predict"], _kinds(config, p, streams[0]))
    mixes = mixes.reshape(*mixes.shape[:-1], count, count)
    return streams + jnp.einsum("sbnh,bnts->tbnh", streams, mixes)


def corrected(config: Config, p: Any, streams: jax.Array, made: jax.Array) -> jax.Array:
    """Predictions moved by how far the first was off what the layer `made`."""
    shares = dense(p["correct"], _kinds(config, p, made)) + 1
    return streams + jnp.moveaxis(shares, -1, 0)[..., None] * (made - streams[0])


def _kinds(config: Config, p: Any, x: jax.Array) -> jax.Array:
    return jnp.tanh(dense(p["router"], normed(config, p["norm"], x) / config.hidden))


def beside(config: Config, p: Any, x: jax.Array) -> jax.Array:
    """x [batch, n, hidden] and a product of low rank of it."""
    return x + normed(config, p["norm"], dense(p["right"], dense(p["left"], x)))
