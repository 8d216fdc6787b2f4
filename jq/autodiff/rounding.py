"""Rounding up or down by gradient descent: the optimisation of AdaRound, in JAX."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

GAMMA, ZETA = -0.1, 1.1  # ends of the stretched sigmoid
START, END = 20.0, 2.0  # of the exponent beta
WARM = 0.2  # of the steps: no regularisation yet


def learn_rounding(
    weight: np.ndarray,
    gram: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray,
    limits: tuple[int, int],
    *,
    steps: int,
    rate: float,
    strength: float,
) -> np.ndarray:
    """Codes f32[K, N], each one of the two beside weight / scale + zero, within `limits`.

        minimise over V  |X (W'(V) - W)|^2 / |X W'_nearest - X W|^2
                         + strength * mean(1 - |2 h(V) - 1|^beta)

    with codes floor(W / scale) + zero + h(V) and h(V) = clip(1.2 sigmoid(V) - 0.1, 0, 1); beta goes
    from 20 to 2 (Nagel et al., "Up or Down? Adaptive Rounding for Post-Training Quantization",
    2020, equations 21 to 25).

    Args:
        gram: f64[K, K], X^T X.
        scale, zero: f32[K, N], of each element.
    """
    low = np.floor(weight / scale)
    start = np.clip(weight / scale - low, 0.01, 0.99)
    steepness = (start - GAMMA) / (ZETA - GAMMA)
    nearest = np.clip(np.rint(weight / scale) + zero, *limits)
    d = (nearest - zero) * scale - weight
    error = max(float((d * (gram @ d)).sum()), 1e-30)
    arrays = (weight, low + zero, scale, zero, gram / error)
    v = np.log(steepness / (1 - steepness))
    found = _descend(
        jnp.asarray(v, jnp.float32),
        *(jnp.asarray(a, jnp.float32) for a in arrays),
        limits=limits,
        steps=steps,
        rate=rate,
        strength=strength,
    )
    up = np.asarray(_soft(found)) >= 0.5
    return np.asarray(np.clip(low + zero + up, *limits), np.float32)


def _soft(v: Any) -> Any:
    return jnp.clip(jax.nn.sigmoid(v) * (ZETA - GAMMA) + GAMMA, 0, 1)


@partial(jax.jit, static_argnames=("limits", "steps"))
def _descend(
    v: Any,
    weight: Any,
    low: Any,
    scale: Any,
    zero: Any,
    gram: Any,
    *,
    limits: tuple[int, int],
    steps: int,
    rate: float,
    strength: float,
) -> Any:
    """Adam, on all columns at once."""

    def difference(v: Any) -> Any:
        return (jnp.clip(low + _soft(v), *limits) - zero) * scale - weight

    def undecided(v: Any, share: Any) -> Any:
        beta = END + (START - END) * 0.5 * (1 + jnp.cos(jnp.pi * share))
        return (1 - jnp.abs(2 * _soft(v) - 1) ** beta).mean()

    def step(i: Any, state: Any) -> Any:
        v, mean, square = state
        share = jnp.maximum(0.0, (i / steps - WARM) / (1 - WARM))
        d, back = jax.vjp(difference, v)
        (g,) = back(2 * (gram @ d))  # the gram is symmetric: one product, not the two of autodiff
        g += strength * jnp.where(share > 0, jax.grad(undecided)(v, share), 0.0)
        mean = 0.9 * mean + 0.1 * g
        square = 0.999 * square + 0.001 * g * g
        t = i + 1.0
        update = (mean / (1 - 0.9**t)) / (jnp.sqrt(square / (1 - 0.999**t)) + 1e-12)
        return v - rate * update, mean, square

    return jax.lax.fori_loop(0, steps, step, (v, jnp.zeros_like(v), jnp.zeros_like(v)))[0]
