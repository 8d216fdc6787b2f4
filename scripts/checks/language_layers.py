"""A language model's distance from float, held against the rounding of activations alone.

    scripts/check.py language_layers model.gguf [--text TEXT] [--tokens 64]

JAX computes the decoded model with activations rounded exactly as the kernels round them, and again
with what the first product reads changed by 1e-7 of it, as the order of a sum would. Shown are, by
layer, how far keys and values are apart, as a share of their root mean square: those of the
programs from JAX's, those of JAX's two runs, and of either from float. Until rounding differs, the
first is that of float32 sums; then one code of many is another one, and its step goes on through
the layers. Programs that were wrong would have a first figure above the second from some layer on.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jq
from jq.language.decoder import load_decoder
from jq.language.decoder.network import empty, step
from jq.language.decoder.products import INPUTS

BLOCK, NOISE = 32, 1e-7
STEPS = {"key": (1 << 14) - 1, "value": (1 << 14) - 1}  # of a block's largest, by product; else 127
TEXT = "La capitale de la France est Paris, et celle de l'Italie est Rome. " * 4


def rounded(x: jax.Array, steps: int) -> jax.Array:
    """As `int8-dynamic` of a language model: symmetric codes by block, half to even."""
    blocks = x.reshape(*x.shape[:-1], -1, BLOCK)
    largest = jnp.abs(blocks).max(-1, keepdims=True)
    inverse, scale = (jnp.where(largest > 0, y, 1) for y in (steps / largest, largest / steps))
    return (jnp.round(blocks * inverse) * scale).reshape(x.shape)


def caches(config: Any, rounds: bool, noise: float, params: Any, tokens: jax.Array) -> Any:
    """Keys and values of every layer, of a sequence that begins."""
    number = count()

    def given(weight: Any, x: jax.Array, name: str) -> jax.Array:
        if next(number) == 0:
            x = x * (1 + noise * jax.random.normal(jax.random.key(0), x.shape))
        return rounded(x, STEPS.get(name, 127)) if rounds else x

    reset = INPUTS.set(given)
    try:
        return step(config, params, tokens, jnp.int32(0), empty(config, 1, tokens.shape[1]))[1]
    finally:
        INPUTS.reset(reset)


def apart(a: Any, b: Any) -> float:
    return float(np.sqrt(np.square(a - b).mean() / np.square(b).mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--tokens", type=int, default=64)
    given = parser.parse_args()
    model, decoder = jq.LanguageModel(given.model, context=512), load_decoder(given.model)
    tokens = model.encode(given.text)[: given.tokens]
    ours = [view[:, : len(tokens)] for view in _taken(model, tokens)]
    params = decoder.parameters(512)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)
    found = []
    for rounds, noise in ((True, 0.0), (True, NOISE), (False, 0.0)):
        run = jax.jit(partial(caches, decoder.config, rounds, noise))
        with jax.default_matmul_precision("highest"):
            pairs = run(params, jnp.asarray([tokens]))
        found.append([np.asarray(side) for pair in pairs for side in pair])
    alike, moved, exact = found
    print("layer: programs - JAX in int8 | JAX in int8, changed by 1e-7 | programs, JAX - float")
    for i in range(decoder.config.layers):
        for side, name in ((2 * i, "keys"), (2 * i + 1, "values")):
            figures = [(ours, alike), (moved, alike), (ours, exact), (alike, exact)]
            own, noise_, *off = (f"{apart(a[side], b[side]):.1e}" for a, b in figures)
            print(f"{i} {name}: {own} | {noise_} | {', '.join(off)}")


def _taken(model: jq.LanguageModel, tokens: list[int]) -> list[np.ndarray]:
    """The caches after these tokens, one by one."""
    session = model.session()
    for token in tokens:
        session.take([token])
    return session.caches()
