"""Supervised training of a small classifier, in plain JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Params = Any


def train_classifier(
    fn: Callable[..., jax.Array],
    params: Params,
    images: np.ndarray,
    labels: np.ndarray,
    *,
    epochs: int,
    batch: int,
    rate: float,
    decay: float,
    seed: int,
) -> Params:
    """Minimises the cross entropy of `fn(params, images[i])` against `labels[i]`.

    Adam (Kingma and Ba 2015, algorithm 1) with decoupled weight decay (Loshchilov and
    Hutter 2019) and a cosine schedule from `rate` to 0. Every epoch visits a new
    permutation of the data and leaves out its incomplete last batch.
    """
    rng = np.random.default_rng(seed)
    per_epoch = len(images) // batch
    total = epochs * per_epoch

    def loss(p: Params, x: jax.Array, y: jax.Array) -> jax.Array:
        scores = jax.nn.log_softmax(fn(p, x))
        return -jnp.mean(jnp.take_along_axis(scores, y[:, None], axis=1))

    @jax.jit  # one step, called in a Python loop: XLA's CPU convolutions crawl inside a `while`
    def step(state: Any, t: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        p, m, v = state
        lr = rate * 0.5 * (1 + jnp.cos(jnp.pi * t / total))
        g = jax.grad(loss)(p, x, y)
        m = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, m, g)
        v = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, v, g)

        def update(w: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
            direction = (a / (1 - 0.9**t)) / (jnp.sqrt(b / (1 - 0.999**t)) + 1e-8)
            return w - lr * (direction + decay * w)

        return jax.tree.map(update, p, m, v), m, v

    zeros = jax.tree.map(jnp.zeros_like, params)
    state, t = (params, zeros, zeros), 0
    for _ in range(epochs):
        order = rng.permutation(len(images))[: per_epoch * batch]
        for index in order.reshape(per_epoch, batch):
            t += 1
            state = step(state, np.float32(t), images[index], labels[index])
    return state[0]
