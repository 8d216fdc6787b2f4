"""Quantized GGUF files of a model: ours and llama.cpp's, with importance and without.

    scripts/check.py quantizers model.gguf --importance TEXT --text TEXT --libraries FOLDER
        [--type q4_k] [--pieces 16] [--limit 1024]

The model is decoded to float32 and written so; both quantizers make a file of that. llama.cpp gets
the mean squares of what each matrix is multiplied by on the text for importance, as ours measures
them. What each file's weights are worth is measured with float activations on the other text:
perplexity, KL divergence from the decoded model, and tokens whose likeliest one changes.
`--libraries` is the folder of llama.cpp's shared libraries in npm's `@node-llama-cpp/linux-x64`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import jq
from jq.frontends.gguf import load_gguf, open_gguf
from jq.frontends.gguf.write import NewTensor, write_like
from jq.language.decoder import load_decoder
from jq.language.decoder.gguf import file_names
from jq.language.decoder.layerwise import Aim, quantized_layers
from jq.language.perplexity import measure
from jq.language.quantize import pieces_of, quantize
from jq.language.tokenizer import tokenizer_of_gguf


def decoded(source: Path, out: Path) -> None:
    """The same model in float32."""
    file, (data, header) = load_gguf(source), open_gguf(source)
    tensors = [
        NewTensor(name, tuple(leaf.shape), "F32", partial(np.asarray, leaf, np.float32))
        for name, leaf in file.tensors.items()
    ]
    write_like(out, data, header, tensors, {"general.file_type": 0})


def mean_squares(source: Path, texts: list[Path], pieces: int) -> dict[str, np.ndarray]:
    """Mean squares of the columns of each matrix of the layers, by the file's names."""
    decoder = load_decoder(source)
    assert decoder.file is not None
    tokenizer = tokenizer_of_gguf(decoder.file.metadata, str(source))
    names, found = file_names(decoder.config), dict[str, np.ndarray]()

    def keep(path: str, aim: Aim, gram: np.ndarray) -> None:
        found[names[path]] = np.diag(gram).copy()

    tokens = pieces_of(texts, tokenizer, decoder.config, pieces)
    for _ in quantized_layers(decoder, tokens, keep):
        pass
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--importance", type=Path, nargs="+", required=True)
    parser.add_argument("--text", type=Path, nargs="+", required=True)
    parser.add_argument("--libraries", required=True)
    parser.add_argument("--type", nargs="+", default=["q4_0", "q4_k"])
    parser.add_argument("--pieces", type=int, default=16)
    parser.add_argument("--limit", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        source, squares = work / "float.gguf", work / "squares.npz"
        decoded(given.model, source)
        means: dict[str, Any] = mean_squares(source, given.importance, given.pieces)
        np.savez(squares, **means)
        load = partial(
            jq.LanguageModel, pipeline="float", context=512, threads=given.threads, cache_dir=work
        )
        exact: Any = load(source)
        for kind in given.type:
            made = {
                who: work / f"{kind}-{i}.gguf"
                for i, who in enumerate(("llama.cpp", "llama.cpp, importance", "ours, importance"))
            }
            theirs, weighted, ours = made.values()
            script = str(Path(__file__).parents[1] / "peers" / "llama_quantize.py")
            for out, more in ((theirs, []), (weighted, [squares])):
                command = [sys.executable, script, given.libraries, source, out, kind, *more]
                subprocess.run(command, check=True, capture_output=True)
            quantize(source, ours, kind, given.importance, given.pieces)
            for who, out in made.items():
                found = measure(load(out), given.text, exact, given.limit)
                print(
                    f"{kind}, {who}: {out.stat().st_size} bytes, KL {found.kl:.4g}, {found.changed}"
                    f" of {found.tokens} tokens change, perplexity {found.perplexity:.2f}"
                    f" ({found.other_perplexity:.2f})",
                    flush=True,
                )
                out.unlink()
