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
import tempfile
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
# Architectures that came later; their files are written by `save_pretrained`.
SMALL = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
TEMPERED: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
TEMPERED |= {
    "original_max_position_embeddings": 4,
    "llama_4_scaling_beta": 0.1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
LATENT: dict[str, Any] = {
    "kv_lora_rank": 16,
    "q_lora_rank": None,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
}
DELTA: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
}
DELTA |= {
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "num_hidden_layers": 3,
}
MAMBA: dict[str, Any] = {
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_n_groups": 2,
    "mamba_d_state": 8,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_chunk_size": 4,
}
CASES |= {
    "smollm3": ("smollm3", {"num_hidden_layers": 4}),
    "granite": (
        "granite",
        {
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.2,
            "logits_scaling": 2.0,
        },
    ),
    "granite-experts": (
        "granitemoe",
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.2,
            "logits_scaling": 2.0,
            "intermediate_size": 24,
        },
    ),
    "olmo2": ("olmo2", {}),
    "olmo3": (
        "olmo3",
        {
            "num_hidden_layers": 4,
            "sliding_window": 4,
            "rope_parameters": {
                "full_attention": YARN,
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
    ),
    "ministral3": ("ministral3", {"rope_parameters": TEMPERED, "sliding_window": None}),
    "ministral": (
        "ministral",
        {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "exaone4": (
        "exaone4",
        {"num_hidden_layers": 4, "sliding_window": 4, "sliding_window_pattern": 4},
    ),
    "deepseek3": (
        "deepseek_v3",
        LATENT
        | {
            "num_hidden_layers": 2,
            "first_k_dense_replace": 1,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "n_group": 1,
            "topk_group": 1,
            "routed_scaling_factor": 1.5,
            "q_lora_rank": 24,
            "head_dim": 8,
        },
    ),
    "qwen2-experts": (
        "qwen2_moe",
        SMALL | {"shared_expert_intermediate_size": 40, "norm_topk_prob": False},
    ),
    "glm4": ("glm4", {"attention_bias": True, "head_dim": 16}),
    "glm": ("glm", {"attention_bias": True, "head_dim": 16}),
    "phi": (
        "phi",
        {
            "head_dim": 8,
            "num_key_value_heads": 4,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
            },
        },
    ),
    "stablelm": (
        "stablelm",
        {
            "head_dim": 8,
            "use_qkv_bias": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
            },
        },
    ),
    "stablelm-parallel": (
        "stablelm",
        {
            "head_dim": 8,
            "use_parallel_residual": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.25,
            },
        },
    ),
    "starcoder2": ("starcoder2", {"head_dim": 8, "use_bias": True, "sliding_window": 5}),
    "gpt-oss": (
        "gpt_oss",
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "sliding_window": 4,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 16,
            },
        },
    ),
    "llama4": (
        "llama4_text",
        {
            "num_hidden_layers": 4,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "intermediate_size": 24,
            "intermediate_size_mlp": 40,
            "interleave_moe_layer_step": 2,
            "attention_chunk_size": 5,
            "floor_scale": 4,
            "attn_scale": 0.3,
            "use_qk_norm": True,
        },
    ),
    "lfm2": (
        "lfm2",
        {
            "head_dim": 8,
            "num_hidden_layers": 3,
            "layer_types": ["conv", "full_attention", "conv"],
            "block_auto_adjust_ff_dim": False,
            "intermediate_size": 48,
        },
    ),
    "qwen3-next": (
        "qwen3_next",
        SMALL
        | DELTA
        | {
            "shared_expert_intermediate_size": 40,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
            },
        },
    ),
    "qwen3.5": (
        "qwen3_5_text",
        DELTA
        | {
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
            }
        },
    ),
    "falcon-h1": (
        "falcon_h1",
        MAMBA
        | {
            "mamba_d_ssm": 64,
            "embedding_multiplier": 2.0,
            "lm_head_multiplier": 0.5,
            "key_multiplier": 0.7,
            "attention_in_multiplier": 0.9,
            "attention_out_multiplier": 0.8,
            "ssm_in_multiplier": 1.1,
            "ssm_out_multiplier": 0.6,
            "ssm_multipliers": [0.9, 0.8, 1.1, 1.2, 0.7],
            "mlp_multipliers": [0.6, 0.9],
            "mamba_rms_norm": False,
        },
    ),
    "granite4": (
        "granitemoehybrid",
        MAMBA
        | {
            "num_hidden_layers": 3,
            "layer_types": ["mamba", "attention", "mamba"],
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "intermediate_size": 24,
            "shared_intermediate_size": 40,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.2,
            "logits_scaling": 2.0,
            "position_embedding_type": "nope",
        },
    ),
    "granite4-dense": (
        "granitemoehybrid",
        MAMBA
        | {
            "num_hidden_layers": 3,
            "layer_types": ["mamba", "attention", "mamba"],
            "num_local_experts": 0,
            "num_experts_per_tok": 0,
            "shared_intermediate_size": 40,
            "position_embedding_type": "rope",
        },
    ),
    "deepseek2": (
        "deepseek_v2",
        LATENT
        | {
            "num_hidden_layers": 2,
            "first_k_dense_replace": 1,
            "n_routed_experts": 4,
            "n_shared_experts": 2,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "topk_method": "greedy",
            "routed_scaling_factor": 1.5,
            "norm_topk_prob": False,
            "head_dim": 8,
        },
    ),
    "minicpm3": (
        "minicpm3",
        LATENT
        | {
            "q_lora_rank": 24,
            "scale_emb": 3.0,
            "scale_depth": 1.4,
            "dim_model_base": 16,
            "head_dim": 24,
        },
    ),
    "llama4-defaults": (
        "llama4_text",
        {
            "num_hidden_layers": 4,
            "num_local_experts": 4,
            "num_experts_per_tok": 1,
            "intermediate_size": 24,
            "intermediate_size_mlp": 40,
        },
    ),
    "minicpm3-defaults": (
        "minicpm3",
        LATENT | {"q_lora_rank": 24, "scale_emb": 12.0, "scale_depth": 1.4, "head_dim": 24},
    ),
    "gemma4": (
        "gemma4_text",
        {
            "num_hidden_layers": 5,
            "num_kv_shared_layers": 2,
            "layer_types": [*["sliding_attention", "full_attention"] * 2, "full_attention"],
            "sliding_window": 4,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 48,
            "global_head_dim": 24,
            "use_double_wide_mlp": True,
        },
    ),
    "gemma4-keys": (
        "gemma4_text",
        {
            "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 4,
            "hidden_size_per_layer_input": 0,
            "global_head_dim": 24,
            "num_global_key_value_heads": 1,
            "attention_k_eq_v": True,
            "final_logit_softcapping": 5.0,
        },
    ),
    "gemma3n": (
        "gemma3n_text",
        {
            "num_hidden_layers": 5,
            "num_kv_shared_layers": 2,
            "layer_types": [*["sliding_attention", "full_attention"] * 2, "full_attention"],
            "sliding_window": 4,
            "hidden_size_per_layer_input": 8,
            "vocab_size_per_layer_input": 40,
            "laurel_rank": 8,
            "activation_sparsity_pattern": [0.9, 0.0, 0.5, 0.0, 0.0],
            "altup_num_inputs": 3,
            "intermediate_size": 48,
            "final_logit_softcapping": 5.0,
        },
    ),
    # Keys that the model does not read, and one that it does.
    "gemma-unread": (
        "gemma",
        {"final_logit_softcapping": 3.0, "hidden_activation": "relu", "hidden_act": "gelu"},
    ),
    "gemma3-exact-gelu": (
        "gemma3_text",
        {
            "sliding_window": 4,
            "query_pre_attn_scalar": 16,
            "hidden_activation": "gelu",
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 5.0,
        },
    ),
    "phi-table": ("phi", {"head_dim": 8, "num_key_value_heads": 4, "tie_word_embeddings": True}),
    "deepseek2-unread": (
        "deepseek_v2",
        LATENT
        | {
            "first_k_dense_replace": 1,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "topk_method": "greedy",
            "norm_topk_prob": True,
            "head_dim": 8,
        },
    ),
    "lfm2-unread": (
        "lfm2",
        {
            "head_dim": 8,
            "layer_types": ["conv", "full_attention"],
            "block_auto_adjust_ff_dim": False,
            "intermediate_size": 48,
            "hidden_act": "relu",
        },
    ),
    "deepseek3-groups": (
        "deepseek_v3",
        LATENT
        | {
            "num_hidden_layers": 2,
            "first_k_dense_replace": 1,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 24,
            "n_group": 4,
            "topk_group": 2,
            "q_lora_rank": 24,
            "head_dim": 8,
        },
    ),
    "phi-heads": ("phi", {"head_dim": 8, "num_key_value_heads": 4, "qk_layernorm": True}),
    "falcon-h1-gelu": (
        "falcon_h1",
        MAMBA | {"mamba_d_ssm": 64, "mamba_rms_norm": False, "hidden_act": "gelu"},
    ),
    "stablelm-heads": ("stablelm", {"head_dim": 8, "qk_layernorm": True}),
    "gemma4-alike": (
        "gemma4_text",
        {
            "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 4,
            "hidden_size_per_layer_input": 0,
            "head_dim": 24,
            "global_head_dim": 24,
        },
    ),
}
CASES["deepseek3-halves"] = (
    "deepseek_v3",
    CASES["deepseek3-groups"][1] | {"rope_interleave": False, "hidden_act": "relu2"},
)
CASES["falcon-h1-biases"] = (
    "falcon_h1",
    CASES["falcon-h1"][1] | dict.fromkeys(("mamba_proj_bias", "attention_bias", "mlp_bias"), True),
)
ROUTED: dict[str, Any] = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "routed_scaling_factor": 1.5,
    "n_group": 1,
    "topk_group": 1,
}
GPT: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
GPT |= {"head_dim": 8, "num_key_value_heads": 4}
NEOX: dict[str, Any] = {"head_dim": 8, "num_key_value_heads": 4, "rotary_pct": 0.5}
CASES |= {
    "glm4-latent": (
        "glm4_moe_lite",
        LATENT | ROUTED | {"q_lora_rank": 24, "head_dim": 8, "n_shared_experts": 1},
    ),
    "youtu": ("youtu", LATENT | {"q_lora_rank": 24, "head_dim": 8, "tie_word_embeddings": False}),
    "lfm2-experts": (
        "lfm2_moe",
        {
            "head_dim": 8,
            "num_hidden_layers": 3,
            "layer_types": ["conv", "full_attention", "conv"],
            "num_dense_layers": 1,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
            "intermediate_size": 48,
            "routed_scaling_factor": 1.5,
        },
    ),
    "granite-shared": (
        "granitemoeshared",
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "intermediate_size": 24,
            "shared_intermediate_size": 40,
            "logits_scaling": 2.0,
        },
    ),
    "internlm3": ("internlm3", {}),
    "arcee": ("arcee", {}),
    "olmoe": ("olmoe", {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2}),
    "seed-oss": ("seed_oss", {}),
    "vaultgemma": ("vaultgemma", {"sliding_window": 4, "query_pre_attn_scalar": 12}),
    "nemotron": ("nemotron", {}),
    "cohere": ("cohere", {"logit_scale": 0.25, "use_qk_norm": True, "head_dim": 8}),
    "cohere2": (
        "cohere2",
        {"num_hidden_layers": 4, "sliding_window": 4, "logit_scale": 0.25, "head_dim": 8},
    ),
    "glm4-experts": (
        "glm4_moe",
        ROUTED | {"n_shared_experts": 1, "use_qk_norm": True, "attention_bias": True},
    ),
    "ernie4.5": ("ernie4_5", {"use_bias": True}),
    "ernie4.5-experts": (
        "ernie4_5_moe",
        {
            "num_hidden_layers": 3,
            "moe_num_experts": 4,
            "moe_k": 2,
            "moe_intermediate_size": 24,
            "moe_layer_end_index": 1,
            "tie_word_embeddings": False,
        },
    ),
    "ernie4.5-none-shared": (
        "ernie4_5_moe",
        {
            "moe_num_experts": 4,
            "moe_k": 2,
            "moe_intermediate_size": 24,
            "moe_num_shared_experts": 0,
        },
    ),
    "hunyuan": ("hunyuan_v1_dense", {"attention_bias": True}),
    "hunyuan-alpha": (
        "hunyuan_v1_dense",
        {
            "rope_parameters": {
                "rope_type": "dynamic",
                "rope_theta": 10000.0,
                "factor": 1.0,
                "alpha": 50.0,
            }
        },
    ),
    "hunyuan-experts": (
        "hunyuan_v1_moe",
        {"num_experts": 4, "moe_topk": [2, 2], "moe_intermediate_size": [64, 64]},
    ),
    "jais2": ("jais2", {}),
    "helium": ("helium", {"head_dim": 8}),
    "dots1": (
        "dots1",
        ROUTED
        | {
            "n_shared_experts": 1,
            "first_k_dense_replace": 1,
            "num_hidden_layers": 3,
            "sliding_window": 4,
            "max_window_layers": 2,
            "attention_bias": True,
        },
    ),
    "solar-open": ("solar_open", ROUTED | {"n_shared_experts": 1, "attention_bias": True}),
    "exaone4-experts": (
        "exaone_moe",
        EXPERTS | {"num_hidden_layers": 4, "sliding_window": 4, "n_group": 2, "topk_group": 1},
    ),
    "minimax-m2": ("minimax_m2", SMALL | {"rotary_dim": 8}),
    "exaone": ("exaone", {"tie_word_embeddings": True}),
    "cohere2-whole": (
        "cohere2",
        {"sliding_window": 4, "layer_types": ["full_attention"] * 2, "head_dim": 8},
    ),
    "gpt2": ("gpt2", GPT | {"n_inner": 40}),
    "starcoder": ("gpt_bigcode", GPT | {"num_key_value_heads": 1}),
    "opt": ("opt", {"ffn_dim": 40, "head_dim": 8, "num_key_value_heads": 4}),
    "gpt-neox": ("gpt_neox", NEOX),
    "gpt-neox-in-turn": ("gpt_neox", NEOX | {"use_parallel_residual": False}),
    "apertus": ("apertus", {}),
    "flex-olmo": ("flex_olmo", {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2}),
    "gpt-neo": (
        "gpt_neo",
        {
            "num_layers": 2,
            "num_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 8,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
        },
    ),
    "gpt-j": ("gptj", GPT | {"rotary_dim": 4}),
    "falcon": ("falcon", {"bias": True, "ffn_hidden_size": 40, "num_key_value_heads": 1}),
    "hyperclovax": (
        "hyperclovax",
        {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "logits_scaling": 2.0},
    ),
    "phi-experts": (
        "phimoe",
        {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "attention_bias": True,
            "lm_head_bias": True,
            "router_jitter_noise": 0.2,
            "head_dim": 8,
            "rope_parameters": LONG | {"short_mscale": 1.25, "long_mscale": 1.25},
        },
    ),
    "olmo": ("olmo", {"head_dim": 8}),
    "olmo-clipped": ("olmo", {"head_dim": 8, "clip_qkv": 0.5}),
    "bamba": ("bamba", MAMBA | {"num_hidden_layers": 3, "attn_layer_indices": [1]}),
    "falcon-h1-output": (
        "falcon_h1",
        CASES["falcon-h1"][1] | {"projectors_bias": True, "mamba_proj_bias": False},
    ),
}
SAVED = tuple(CASES)[19:]
TOKENS = 13


def draw(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """A weight by its name: norms near their neutral value, the rest of unit gain."""
    rng = np.random.default_rng([seed, *name.encode()])
    values = rng.standard_normal(shape).astype(np.float32)
    if "norm" in name:
        return np.float32(0.2) * values
    if "bias" in name:
        return np.float32(0.5) * values
    return values / np.float32(np.sqrt(np.prod(shape[-1:])))


def neutral(name: str, model_type: str) -> float:
    """The number that a norm's weight is drawn around."""
    from_one = model_type.startswith(("gemma", "vaultgemma", "nemotron", "qwen3_next", "qwen3_5"))
    from_one = from_one and not model_type.startswith(("gemma4", "gemma3n"))
    if "norm" not in name or "bias" in name or (from_one and "linear_attn" not in name):
        return 0.0
    return 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="the file to write")
    parser.add_argument("--more", action="store_true", help="only cases that it does not have")
    given = parser.parse_args()
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    found = json.loads(given.output.read_text())["cases"] if given.more else {}
    for seed, (case, (kind, changes)) in enumerate(CASES.items()):
        if case in found:
            continue
        own, given_own = CONFIG_MAPPING[kind], {**BASE, **changes}
        computed = [key for key in given_own if isinstance(getattr(own, key, None), property)]
        config = own(**{key: given_own[key] for key in given_own if key not in computed})
        config._attn_implementation = "eager"
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        tied = config.tie_word_embeddings
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            if case in SAVED:
                model.save_pretrained(folder)
                before = load_file(path)
            else:
                before = model.state_dict()
            state = {
                name: torch.from_numpy(
                    np.asarray(draw(name, tuple(t.shape), seed) + np.float32(neutral(name, kind)))
                )
                for name, t in before.items()
                if not (tied and name == "lm_head.weight")
            }
            if case in SAVED:
                save_file(state, path, {"format": "pt"})
                model = AutoModelForCausalLM.from_pretrained(
                    folder, attn_implementation="eager", dtype=torch.float32
                ).eval()
            else:
                model.load_state_dict(state, strict=not tied)
                if tied:
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
        if case in SAVED:
            found[case]["saved"] = True
        print(case, logits.std())
    text = json.dumps({"transformers": transformers.__version__, "cases": found})
    given.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
