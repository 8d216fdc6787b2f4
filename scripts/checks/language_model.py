"""Greedy tokens of a language model against float32 JAX on the decoded weights.

    python scripts/check.py language_model model.gguf [--tokens 256] [--threads 2] [--cache int8]
        [--peer VENV/bin/python]

For each prompt the model generates; JAX then computes the logits of the whole sequence at once.
Where the likeliest token of the two differs for the first time, the difference of JAX's logits
between the two tokens is shown, beside how far the model's logits there are from JAX's (root mean
square, each less its mean), and how far the step of int8 activations moves that difference: its
standard deviation over `DRAWS` runs of JAX in which what products read is rounded to that step from
a drawn offset. A difference below two of them is a tie. KL is the mean divergence from JAX's
distribution over the tokens generated; with `--peer`, an interpreter that has `llama-cpp-python`,
also llama.cpp's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jq
from jq.language.decoder import load_decoder
from jq.language.decoder.network import empty, step
from jq.language.decoder.products import INPUTS
from jq.language.sampling import logprobs

DRAWS, BLOCK = 16, 32

PROMPTS = (
    "The three states of matter are",
    "def fibonacci(n):\n",
    "Once upon a time, in a village by the sea,",
    "La capitale de la France est",
    "Die Geschichte der Informatik beginnt mit",
    "A list of the planets, from the sun outwards:\n1.",
    "To make bread you need flour, water,",
    "Q: What is the square root of 144?\nA:",
)


def divergence(logits: np.ndarray, other: np.ndarray) -> float:
    """Mean KL of rows of logits from those of another."""
    p, q = logprobs(logits), logprobs(other)
    return float((np.exp(p) * (p - q)).sum(-1).mean())


def of_llama(python: str, model: str, tokens: list[int]) -> np.ndarray:
    script = Path(__file__).parents[1] / "peers" / "llama_logits.py"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "logits.npy"
        given = json.dumps([int(t) for t in tokens])
        subprocess.run([python, script, model, out], input=given, text=True, check=True)
        return np.load(out)


def rounded(key: jax.Array, x: jax.Array) -> jax.Array:
    """Numbers in steps of int8 by block, on a grid that is moved by a drawn part of a step: the
    error is spread evenly over a step, and independent of the number."""
    blocks = x.reshape(*x.shape[:-1], -1, BLOCK)
    scale = jnp.abs(blocks).max(-1, keepdims=True) / 127
    moved = jax.random.uniform(key, blocks.shape, minval=-0.5, maxval=0.5)
    codes = jnp.round(blocks / jnp.where(scale > 0, scale, 1) + moved) - moved
    return (codes * scale).reshape(x.shape)


def in_steps(config: Any, params: Any, tokens: Any, caches: Any, seed: jax.Array) -> jax.Array:
    """The last token's logits where every product reads numbers in steps."""
    key, number = jax.random.key(seed), count()

    def given(weight: Any, x: jax.Array, name: str) -> jax.Array:
        return rounded(jax.random.fold_in(key, next(number)), x)

    reset = INPUTS.set(given)
    try:
        return step(config, params, tokens, jnp.int32(0), caches)[0][0, -1]
    finally:
        INPUTS.reset(reset)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", default="float32")
    parser.add_argument("--context", type=int)
    parser.add_argument("--peer")
    given = parser.parse_args()
    model = jq.LanguageModel(
        given.model, threads=given.threads, cache=given.cache, context=given.context
    )
    decoder = load_decoder(given.model)
    params = decoder.parameters(model.options.context)
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), params)
    run = jax.jit(partial(step, decoder.config))
    for prompt in PROMPTS[: given.prompts]:
        found = model.generate(prompt, given.tokens)
        tokens = [*found.prompt, *found]
        first = len(found.prompt) - 1
        caches = empty(decoder.config, 1, len(tokens))
        logits = np.asarray(run(params, jnp.asarray([tokens]), jnp.int32(0), caches)[0][0, first:])
        ours = model.session().take(tokens, every=True)[0][first:]
        kl = divergence(logits, ours)
        likeliest = logits[:-1].argmax(-1)
        differ = np.flatnonzero(likeliest != np.array(tokens[first + 1 :]))
        text = f"{found.ended}, {len(found.tokens)} tokens, KL {kl:.2e}"
        if given.peer:
            theirs = divergence(logits, of_llama(given.peer, given.model, tokens)[first:])
            text += f", llama.cpp's {theirs:.2e}"
        if len(differ):
            i = int(differ[0])
            two = [likeliest[i], tokens[first + 1 + i]]
            gap = logits[i, two[0]] - logits[i, two[1]]
            front = jnp.asarray([tokens[: first + 1 + i]])
            caches = empty(decoder.config, 1, first + 1 + i)
            draw = jax.jit(partial(in_steps, decoder.config))
            drawn = [np.asarray(draw(params, front, caches, seed)) for seed in range(DRAWS)]
            moved = np.std([row[two[0]] - row[two[1]] for row in drawn])
            off = ours[i] - logits[i]
            text += f"; first difference at token {i}, by {gap:.3f} of logit"
            text += f" where logits are off by {(off - off.mean()).std():.3f}"
            text += f" and the step moves it by {moved:.3f} ({gap / moved:.1f} times)"
            text += f"; {len(differ)} tokens are not JAX's choice"
        print(f"{prompt[:30]!r}: {text or 'equal'}", flush=True)
