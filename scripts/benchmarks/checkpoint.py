"""Quantizes a random checkpoint of a llama's shape, larger than memory, and is killed on the way.

    scripts/benchmark.py checkpoint FOLDER [--layers 32] [--fit] [--kill-at 0.4] [-o FILE]

FOLDER/source gets bfloat16 shards of a 7-billion-parameter llama (4096 wide, 11008 inside, 32
heads, vocabulary of 32000; 13.5 GB with 32 layers) of random bits between 2^-7 and 2^-3, unless it
is there already. `jaxq quantize --type int4` then runs as a process of its own, is killed when so
large a share of the output is there (and a while later, which with --fit is within a layer), and
runs again. Times are those of the clock and of the
processor; memory is the largest resident set of the process, pages of the mapped source among it.
With --fit codes are fitted to 32 pieces of 128 random words (GPTQ), a layer at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from jq.formats.tensor import Deferred
from jq.frontends.safetensors import read_file, write_model

HIDDEN, INNER, HEADS, VOCABULARY = 4096, 11008, 32, 32000
PIECES, LENGTH = 32, 128  # of the text for --fit
PER_SHARD = 4  # layers
PIECE = 1 << 24  # elements


def shapes(layers: int) -> list[dict[str, tuple[int, ...]]]:
    """Tensors by shard."""
    square, up, down = (HIDDEN, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER)
    found: list[dict[str, tuple[int, ...]]] = []
    for i in range(layers):
        if i % PER_SHARD == 0:
            found.append({})
        name = f"model.layers.{i}"
        found[-1] |= {f"{name}.self_attn.{k}_proj.weight": square for k in "qkvo"}
        found[-1] |= {f"{name}.mlp.{k}_proj.weight": up for k in ("gate", "up")}
        found[-1][f"{name}.mlp.down_proj.weight"] = down
        norms = ("input_layernorm", "post_attention_layernorm")
        found[-1] |= {f"{name}.{k}.weight": (HIDDEN,) for k in norms}
    tables = {f"{k}.weight": (VOCABULARY, HIDDEN) for k in ("model.embed_tokens", "lm_head")}
    return [*found, {**tables, "model.norm.weight": (HIDDEN,)}]


def bits(shape: tuple[int, ...], seed: int) -> Iterator[np.ndarray]:
    rng, left = np.random.default_rng(seed), int(np.prod(shape))
    while left:
        count = min(PIECE, left)
        raw = np.frombuffer(rng.bytes(2 * count), np.uint16)
        yield ((raw & np.uint16(0x81FF)) | np.uint16(0x3C00)).view(ml_dtypes.bfloat16)
        left -= count


def write_source(folder: Path, layers: int) -> None:
    folder.mkdir(parents=True)
    parts, where = shapes(layers), {}
    for i, part in enumerate(parts):
        file = f"model-{i + 1:05}-of-{len(parts):05}.safetensors"
        bf16 = np.dtype(ml_dtypes.bfloat16)
        made = {
            name: Deferred(shape, bf16, partial(bits, shape, 1000 * i + k))
            for k, (name, shape) in enumerate(part.items())
        }
        write_model(folder / file, made)
        where |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {"model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER}
    config |= {"num_hidden_layers": layers, "num_attention_heads": HEADS, "vocab_size": VOCABULARY}
    config |= {
        "num_key_value_heads": HEADS,
        "max_position_embeddings": LENGTH,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
    }
    (folder / "config.json").write_text(json.dumps(config))
    words = {f"w{i}": i for i in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, "w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    drawn = np.random.default_rng(0).integers(0, VOCABULARY, PIECES * LENGTH)
    (folder / "words.txt").write_text(" ".join(f"w{i}" for i in drawn))


def stored(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.glob("*.safetensors")) if folder.exists() else 0


def run(source: Path, out: Path, fit: bool, kill_at: int | None) -> dict[str, Any]:
    """One run of the command; killed when `kill_at` bytes of whole files are there."""
    command = [sys.executable, "-m", "jq", "quantize", str(source), str(out), "--type", "int4"]
    command += ["--json", "-q", *(["--importance", str(source / "words.txt")] if fit else [])]
    start, child = time.perf_counter(), subprocess.Popen(command, stdout=subprocess.PIPE)
    if kill_at is not None:
        files: list[float] = []  # when each was there
        while child.poll() is None and stored(out) < kill_at:
            time.sleep(0.2)
            whole = len(list(out.glob("*.safetensors"))) if out.exists() else 0
            files += [time.perf_counter() - start] * (whole - len(files))
        time.sleep(files[0] / 2 if fit and files else 0)
        child.kill()
    assert child.stdout is not None
    printed = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    cpu = used.ru_utime + used.ru_stime
    row = {"seconds": seconds, "cpu_seconds": cpu, "peak_bytes": used.ru_maxrss * 1024}
    row |= {"status": os.waitstatus_to_exitcode(status), "stored_bytes": stored(out)}
    return row | {"said": json.loads(printed) if printed else None}


def checked(source: Path, out: Path) -> float:
    """The largest error of a matrix of the last layers over its scale, in NumPy: at most 1/2, and
    what the scale's rounding to bfloat16 adds at the ends, 7.5 * 2^-8."""
    file = sorted(out.glob("*.safetensors"))[-2].name
    codes, floats = read_file(out / file), read_file(source / file)
    module = next(n.removesuffix("_packed") for n in codes if n.endswith("down_proj.weight_packed"))
    words = codes[f"{module}_packed"][:64].view(np.uint32)
    code = np.stack([words >> np.uint32(4 * j) & np.uint32(15) for j in range(8)], -1)
    scale = np.repeat(codes[f"{module}_scale"][:64].astype(np.float32), 32, 1)
    found = (code.reshape(64, -1).astype(np.float32) - 8) * scale
    error = np.abs(found - floats[module][:64].astype(np.float32)) / scale
    return float(error.max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--fit", action="store_true", help="to a text, by GPTQ")
    parser.add_argument("--kill-at", type=float, default=0.4, help="share of the output")
    parser.add_argument("--part", choices=("killed", "resumed"), help="of the runs this one alone")
    parser.add_argument("-o", "--output", type=Path, help="write the figures there as JSON")
    args = parser.parse_args()
    source, out = args.folder / "source", args.folder / "out"
    start = time.perf_counter()
    if not source.exists():
        write_source(source, args.layers)
    figures: dict[str, Any] = {"layers": args.layers, "write_seconds": time.perf_counter() - start}
    figures["source_bytes"] = stored(source)
    if args.part != "resumed":
        shutil.rmtree(out, ignore_errors=True)
        figures["killed"] = run(source, out, args.fit, int(args.kill_at * 0.3 * stored(source)))
    if args.part != "killed":
        figures["resumed"] = run(source, out, args.fit, None)
    if not args.fit and args.part != "killed":
        figures["largest_error_in_steps"] = checked(source, out)
    text = json.dumps(figures, indent=1)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")
