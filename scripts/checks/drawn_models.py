"""Logits of the decoder against those that `transformers` gave for drawn configs.

    PYTHONPATH=scripts python -m oracles.draw_transformers_models FOLDER --seed 1 --count 2
    scripts/check.py drawn_models FOLDER

Each model takes its tokens in pieces that are drawn as well. Shown are models that are refused or
whose logits differ by more than 5e-5 of the largest, with what was drawn; the exit code is 1 where
one is wrong.
"""

from __future__ import annotations

import argparse
from collections import Counter
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jq.base.errors import UserError
from jq.language.decoder import load_decoder
from jq.language.decoder.network import empty, step

PIECES = ((0,), (0, 1, 9), (0, 5), (0, 1, 2, 3))
QUICK = {"xla_backend_optimization_level": 0}  # most of the time is the compiler's


def logits(folder: Path, tokens: np.ndarray, pieces: tuple[int, ...]) -> np.ndarray:
    """f32[tokens, vocabulary]; a piece begins at each of `pieces`."""
    decoder = load_decoder(folder)
    params = jax.tree.map(np.asarray, decoder.parameters(32))
    caches, rows = empty(decoder.config, 1, 32), []
    run = jax.jit(partial(step, decoder.config), compiler_options=QUICK)
    with jax.default_matmul_precision("highest"):
        for start, end in zip(pieces, (*pieces[1:], len(tokens)), strict=True):
            piece = jnp.asarray(tokens[None, start:end], jnp.int32)
            found, caches = run(params, piece, jnp.int32(start), caches)
            rows.append(np.asarray(found[0]))
    return np.concatenate(rows)


def verdict(folder: Path) -> str:
    with np.load(folder / "expected.npz") as expected:
        tokens, wanted = expected["tokens"], expected["logits"]
    pieces = PIECES[sum(folder.name.encode()) % len(PIECES)]
    try:
        got = logits(folder, tokens, pieces)
    except UserError as error:
        return f"refused: {error.message}"
    far = np.abs(got - wanted).max() / np.abs(wanted).max()
    return "right" if far <= 5e-5 else f"wrong by {far:.1e}, in pieces from {pieces}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    counts: Counter[str] = Counter()
    paths = sorted(parser.parse_args().folder.glob("*/expected.npz"))
    if not paths:
        parser.error("no folder in it has an expected.npz")
    for path in paths:
        found = verdict(path.parent)
        counts[found.partition(" ")[0].rstrip(":")] += 1
        if found != "right":
            drawn = (path.parent / "drawn.json").read_text()
            print(f"{path.parent.name}: {found}\n  {drawn}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    raise SystemExit("wrong" in counts)


if __name__ == "__main__":
    main()
