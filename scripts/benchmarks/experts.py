"""Tokens of a mixture of experts against those of a dense model that reads the same bytes.

    scripts/benchmark.py experts [--experts 64 --used 8 --hidden 1024 --inner 1024 --layers 1]

Both are drawn, and compiled to int8 (minutes, for each expert has weights of its own). A dense
model's feed-forward layer is as wide as the experts that a token takes. Calls alternate; shown are
the best and the median of a token, and of a prompt of 128. With `--gguf FILE` the mixture is only
written, as a GGUF file of Q8_0, which `scripts/check.py llama LIBRARIES --time FILE` times against
llama.cpp; with `--case NAME --times N` too, it is a case of the tests with N times its widths.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import jq
from jq.frontends.safetensors import read_file, write_model

VOCABULARY, PROMPT, ROUNDS, TOKENS = 1024, 128, 5, 40


def write(folder: Path, args: argparse.Namespace, experts: bool) -> Path:
    """A folder of Hugging Face: Qwen 3, or its mixture."""
    rng, hidden, head = np.random.default_rng(0), args.hidden, 64
    inner = args.inner if experts else args.inner * args.used
    config: dict[str, Any] = {"model_type": "qwen3_moe" if experts else "qwen3"}
    config |= {"vocab_size": VOCABULARY, "tie_word_embeddings": False}
    config |= {"hidden_size": hidden, "intermediate_size": inner, "head_dim": head}
    config |= {"num_hidden_layers": args.layers, "num_attention_heads": 4, "hidden_act": "silu"}
    config |= {"num_key_value_heads": 2, "max_position_embeddings": 1024, "rms_norm_eps": 1e-6}
    config |= {"norm_topk_prob": True}
    if experts:
        config |= {"num_experts": args.experts, "num_experts_per_tok": args.used}
        config |= {"moe_intermediate_size": inner}
    tensors = {"model.norm.weight": np.ones(hidden, np.float32)}

    def matrix(name: str, *shape: int) -> None:
        values = rng.standard_normal(shape, np.float32) * 0.03
        tensors[f"{name}.weight"] = values.astype(ml_dtypes.bfloat16)

    for name in ("model.embed_tokens", "lm_head"):
        matrix(name, VOCABULARY, hidden)
    for i in range(args.layers):
        stem = f"model.layers.{i}"
        for name, size in (("input_layernorm", hidden), ("post_attention_layernorm", hidden)):
            tensors[f"{stem}.{name}.weight"] = np.ones(size, np.float32)
        for name in ("q_norm", "k_norm"):
            tensors[f"{stem}.self_attn.{name}.weight"] = np.ones(head, np.float32)
        for name, out in (("q_proj", 4), ("k_proj", 2), ("v_proj", 2)):
            matrix(f"{stem}.self_attn.{name}", out * head, hidden)
        matrix(f"{stem}.self_attn.o_proj", hidden, 4 * head)
        if experts:
            matrix(f"{stem}.mlp.gate", args.experts, hidden)
        each = [f"{stem}.mlp.experts.{e}" for e in range(args.experts)]
        for node in each if experts else [f"{stem}.mlp"]:
            matrix(f"{node}.gate_proj", inner, hidden)
            matrix(f"{node}.up_proj", inner, hidden)
            matrix(f"{node}.down_proj", hidden, inner)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    write_model(folder / "model.safetensors", tensors)
    return folder


def write_gguf(folder: Path, file: Path) -> None:
    """The model of a folder as llama.cpp's converter writes it, by what the tests have for it."""
    config = json.loads((folder / "config.json").read_text())
    config |= {"rope_parameters": {"rope_theta": 10000.0}}
    config["num_local_experts"] = config["num_experts"]
    tensors = read_file(folder / "model.safetensors")
    state = {name: np.asarray(array, np.float32) for name, array in tensors.items()}
    _write_gguf(config, state, file)


def _write_gguf(config: dict[str, Any], state: dict[str, np.ndarray], file: Path) -> None:
    import gguf

    from tests.support import decoders

    decoders.CASES["drawn"] = {"config": config}
    decoders.weights = lambda case: state
    small = gguf.GGMLQuantizationType.Q8_0

    def kind(name: str, array: np.ndarray) -> Any:
        return small if array.ndim > 1 and array.shape[-1] % 32 == 0 else None

    decoders.write_gguf("drawn", file, kind)


WIDTHS = ["vocab_size", "hidden_size", "intermediate_size", "head_dim", "moe_intermediate_size"]
WIDTHS += ["linear_key_head_dim", "linear_value_head_dim"]
HEADS = ("A_log", "dt_bias", "in_proj_a.weight", "in_proj_b.weight")  # have one row a head


def write_case(name: str, times: int, file: Path) -> None:
    """A case of the tests with so many times its widths; heads and layers stay as many."""
    from tests.support import decoders

    rng, case = np.random.default_rng(0), decoders.CASES[name]
    config = {k: v * times if k in WIDTHS else v for k, v in case["config"].items()}
    config |= {"max_position_embeddings": 1024}
    state = {}
    for tensor, (rows, *columns) in case["shapes"].items():
        rows = rows if tensor.endswith(HEADS) else rows * times
        columns = [n * times for n in columns] if len(columns) == 1 else columns
        values = rng.standard_normal((rows, *columns), np.float32) * 0.03
        state[tensor] = values + np.float32(1) if len(values.shape) == 1 else values
    _write_gguf(config, state, file)


def measure(models: dict[str, jq.LanguageModel]) -> dict[str, list[list[float]]]:
    """Seconds of prompts and of tokens by model; the first round, which compiles, is left out."""
    found: dict[str, list[list[float]]] = {name: [[], []] for name in models}
    tokens = [(7919 * t) % (VOCABULARY - 24) for t in range(PROMPT + TOKENS)]
    for i in range(ROUNDS + 1):
        for name, model in models.items():
            session = model.session()
            for which, part in enumerate(([tokens[:PROMPT]], [[t] for t in tokens[PROMPT:]])):
                for some in part:
                    start = time.perf_counter()
                    session.take(some)
                    if i:
                        found[name][which].append(time.perf_counter() - start)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    sizes = {"experts": 64, "used": 8, "hidden": 1024, "inner": 1024, "layers": 1, "threads": 1}
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--gguf", type=Path, help="write the mixture to this file alone")
    parser.add_argument("--case", help="write this case of the tests, `--times` as wide")
    parser.add_argument("--times", type=int, default=32)
    args = parser.parse_args()
    if args.case:
        return write_case(args.case, args.times, args.gguf)
    with tempfile.TemporaryDirectory() as work:
        if args.gguf:
            return write_gguf(write(Path(work) / "experts", args, True), args.gguf)
        models = {
            name: jq.LanguageModel(
                write(Path(work) / name, args, name == "experts"),
                context=256,
                threads=args.threads,
                cache_dir=Path(work) / "cache",
            )
            for name in ("dense", "experts")
        }
        found = measure(models)
    for which, what in enumerate((f"prompt of {PROMPT}", "token")):
        dense, experts = (
            (1e3 * min(times[which]), 1e3 * statistics.median(times[which]))
            for times in found.values()
        )
        print(
            f"{what}: dense {dense[0]:.2f} ms (median {dense[1]:.2f}), experts {experts[0]:.2f}"
            f" ({experts[1]:.2f}), ratio {experts[0] / dense[0]:.2f} ({experts[1] / dense[1]:.2f})"
        )
    return None


if __name__ == "__main__":
    main()
