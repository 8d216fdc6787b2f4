"""Draws configs of language models, and writes what `transformers` makes of them.

    pip install torch transformers   # elsewhere: the check needs neither
    PYTHONPATH=scripts python -m oracles.draw_transformers_models FOLDER --seed 1 --count 2
    scripts/check.py drawn_models FOLDER   # compares them with the decoder

Every case of `write_transformers_logits` is drawn `count` times, with other sizes and choices. A
config that `transformers` refuses is left out.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from oracles.write_transformers_logits import BASE, CASES, draw, neutral

# Keys and the values that they are drawn from, of all and by beginnings of model types; half of
# them are drawn. Keys that an architecture does not read are among them.
ALL: dict[str, list[Any]] = {
    "hidden_size": [32, 48, 64],
    "head_dim": [8, 16, 24],
    "num_hidden_layers": [1, 2, 3],
    "num_key_value_heads": [1, 2, 4],
    "rms_norm_eps": [1e-6, 1e-3],
    "tie_word_embeddings": [True, False],
    "attention_bias": [True, False],
    "hidden_act": ["silu", "gelu", "gelu_pytorch_tanh", "relu"],
    "final_logit_softcapping": [3.0, 20.0],
    "attn_logit_softcapping": [2.0, 10.0],
    "norm_topk_prob": [True, False],
    "sliding_window": [2, 3, 7, None],
}
SCALINGS: list[dict[str, Any]] = [
    {"rope_type": "default", "rope_theta": 100.0},
    {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
    {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.5},
    {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 8},
]
GROUPS = [(1, 1), (2, 1), (2, 2)]
OWN: dict[str, dict[str, list[Any]]] = {
    "gemma": {"hidden_activation": ["silu", "gelu", "gelu_pytorch_tanh"]},
    "granite": {"residual_multiplier": [0.3, 1.0], "logits_scaling": [1.0, 5.0]},
    "deepseek": {
        "n_shared_experts": [1, 2],
        "first_k_dense_replace": [0, 1, 2],
        "routed_scaling_factor": [1.0, 2.5],
        "q_lora_rank": [None, 8],
    },
    "stablelm": {"qk_layernorm": [True, False], "use_parallel_residual": [True, False]},
    "phi": {"qk_layernorm": [True, False]},
    "llama4": {
        "use_qk_norm": [True, False],
        "attn_temperature_tuning": [True, False],
        "interleave_moe_layer_step": [1, 2, 3],
        "attention_chunk_size": [3, 5, 9],
    },
    "smollm3": {"no_rope_layers": [[1, 0, 1, 1], [0, 0, 1, 1]], "use_sliding_window": [True]},
    "lfm2": {"conv_L_cache": [2, 3, 4], "conv_bias": [True, False]},
    "gpt_oss": {"num_experts_per_tok": [1, 3]},
    "qwen3_next": {"linear_conv_kernel_dim": [2, 3, 4], "linear_num_value_heads": [2, 6]},
    "qwen3_5": {"linear_conv_kernel_dim": [2, 3, 4], "linear_value_head_dim": [4, 16]},
    "gemma3n": {"altup_num_inputs": [2, 3, 4], "laurel_rank": [4, 8]},
}
for hybrid in ("falcon_h1", "granitemoehybrid"):
    OWN[hybrid] = {"mamba_conv_bias": [True, False], "mamba_d_conv": [2, 3, 4]}
    OWN[hybrid] |= {"mamba_n_groups": [1, 2, 4], "mamba_d_state": [4, 8, 16]}
FIXED = {"falcon_h1": {"hidden_size"}, "granitemoehybrid": {"hidden_size"}}
SCALED = ("llama", "mistral", "qwen2", "qwen3", "olmo2", "granite", "mixtral", "qwen3_moe")


def drawn(rng: np.random.Generator, kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """Changes of a case's config; what sizes of the case hang on stays."""
    choices = {k: v for k, v in ALL.items() if k not in given and k not in FIXED.get(kind, ())}
    if {"kv_lora_rank", "layer_types"} & given.keys() or "head_dim" in given:
        for key in ("num_key_value_heads", "hidden_size", "num_hidden_layers"):
            choices.pop(key, None)
    for start, own in OWN.items():
        choices |= own if kind.startswith(start) else {}
    found = {}
    for key, values in choices.items():
        if rng.random() < 0.5:
            found[key] = values[rng.integers(len(values))]
    if kind in SCALED and "rope_parameters" not in given:
        found["rope_parameters"] = SCALINGS[rng.integers(len(SCALINGS))]
    if kind == "deepseek_v3":
        groups, used = GROUPS[rng.integers(len(GROUPS))]
        found |= {"n_group": groups, "topk_group": used}
    return found


def write(folder: Path, kind: str, config: Any, rng: np.random.Generator) -> None:
    """A model of drawn weights, with tokens and logits in `expected.npz`."""
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM

    how: dict[str, Any] = {"attn_implementation": "eager"}
    AutoModelForCausalLM.from_config(config, **how).save_pretrained(folder)
    path = folder / "model.safetensors"
    seed = int(rng.integers(1 << 30))
    state = {
        name: torch.from_numpy(draw(name, tuple(t.shape), seed) + np.float32(neutral(name, kind)))
        for name, t in load_file(path).items()
    }
    save_file(state, path, {"format": "pt"})
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **how).eval()
    tokens = rng.integers(3, BASE["vocab_size"], 17)
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens[None])).logits[0].float().numpy()
    np.savez(folder / "expected.npz", tokens=tokens, logits=logits)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1, help="draws of each case")
    given = parser.parse_args()
    from transformers import CONFIG_MAPPING

    for case, (kind, changes) in CASES.items():
        for number in range(given.count):
            rng = np.random.default_rng([given.seed, number, *case.encode()])
            more = drawn(rng, kind, changes)
            folder = given.folder / f"{case}-{given.seed}-{number}"
            try:
                config = CONFIG_MAPPING[kind](**{**BASE, **changes, **more})
                folder.mkdir(parents=True)
                write(folder, kind, config, rng)
            except Exception as error:  # whatever it refuses a config with
                print(f"{folder.name}: left out: {type(error).__name__}: {error}"[:120])
                continue
            (folder / "drawn.json").write_text(json.dumps(more))


if __name__ == "__main__":
    main()
