#!/usr/bin/env python3
"""Writes tests/language/decoder/transformers_logits.json: what `transformers` computes on tiny
random models.

    pip install torch transformers   # elsewhere: the tests need neither
    python scripts/oracles/write_transformers_logits.py \
        tests/language/decoder/transformers_logits.json

Per case: the config as `transformers` writes it, the seed of the weights, tokens, and float32
logits. Weights are drawn anew from the seed by the tests, so that they are not stored.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

BASE = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}
YARN |= {"original_max_position_embeddings": 16}
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
LONG |= {"short_factor": [1.0, 1.1, 1.3, 1.5], "long_factor": [1.0, 2.0, 3.0, 4.0]}
LONG |= {"original_max_position_embeddings": 64}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-one-head-of-keys": ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "llama3-positions": ("llama", {"rope_parameters": LLAMA3}),
    "llama-linear": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}},
    ),
    "mistral": ("mistral", {"sliding_window": 5}),
    "mixtral": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2": ("qwen2", {}),
    "qwen2-window": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    "qwen2-yarn": ("qwen2", {"rope_parameters": YARN}),
    "qwen3": ("qwen3", {"tie_word_embeddings": True}),
    "gemma2": ("gemma2", {"sliding_window": 4, "query_pre_attn_scalar": 16}),
    "gemma2-scale": ("gemma2", {"query_pre_attn_scalar": 12}),
    "gemma3": (
        "gemma3_text",
        {"num_hidden_layers": 7, "sliding_window": 4, "query_pre_attn_scalar": 16},
    ),
    "phi3": ("phi3", {"sliding_window": 6}),
    "phi3-long": (
        "phi3",
        {"rope_parameters": LONG, "original_max_position_embeddings": 64, "head_dim": 8},
    ),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "gemma": ("gemma", {}),
    "qwen3-experts": ("qwen3_moe", EXPERTS | {"norm_topk_prob": True}),
    "qwen3-shares": ("qwen3_moe", EXPERTS | {"norm_topk_prob": False}),
}
TOKENS = 13


def draw(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """A weight by its name: norms near their neutral value, the rest of unit gain."""
    rng = np.random.default_rng([seed, *name.encode()])
    values = rng.standard_normal(shape).astype(np.float32)
    if "norm" in name:
        return np.float32(0.2) * values
    if "bias" in name:
        return np.float32(0.5) * values
    return values / np.float32(np.sqrt(shape[-1]))


def neutral(name: str, model_type: str) -> float:
    """What a norm's weight is drawn around."""
    return 1.0 if "norm" in name and not model_type.startswith("gemma") else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="the file to write")
    given = parser.parse_args()
    import torch
    import transformers
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    found = {}
    for seed, (case, (kind, changes)) in enumerate(CASES.items()):
        config = CONFIG_MAPPING[kind](**{**BASE, **changes})
        config._attn_implementation = "eager"
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        state = {
            name: torch.from_numpy(
                draw(name, tuple(t.shape), seed) + np.float32(neutral(name, kind))
            )
            for name, t in model.state_dict().items()
            if not (config.tie_word_embeddings and name == "lm_head.weight")
        }
        model.load_state_dict(state, strict=not config.tie_word_embeddings)
        if config.tie_word_embeddings:
            model.tie_weights()
        tokens = np.random.default_rng(seed).integers(3, BASE["vocab_size"], TOKENS)
        with torch.no_grad():
            logits = model(torch.from_numpy(tokens[None])).logits[0].float().numpy()
        found[case] = {
            "config": json.loads(config.to_json_string(use_diff=False)),
            "seed": seed,
            "tokens": tokens.tolist(),
            "shapes": {name: list(t.shape) for name, t in state.items()},
            "logits": [[float(f"{x:.7g}") for x in row] for row in logits],
        }
        print(case, logits.std())
    text = json.dumps({"transformers": transformers.__version__, "cases": found})
    given.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
