"""Writes jq/language/decoder/architectures/defaults.json: what the config classes of `transformers`
have for keys that a `config.json` leaves out.

    pip install torch transformers   # elsewhere: the compiler needs neither
    PYTHONPATH=scripts python -m oracles.write_transformers_defaults \
        jq/language/decoder/architectures/defaults.json [MODEL_TYPE ...]

By key and value, the model types that have it; those named are added to those that are there.
Values are numbers and switches that the decoder asks for, under its own names of keys. What a class
makes of other values (a null) is left out.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

# Keys as `jq/language/decoder/text.py` and the architectures rename them.
LATER = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_inner": "intermediate_size"}
LATER |= {"n_head": "num_attention_heads", "n_positions": "max_position_embeddings"}
LATER |= {"moe_k": "num_experts_per_tok", "moe_topk": "num_experts_per_tok"}
LATER |= {"num_kv_heads": "num_key_value_heads", "ffn_hidden_size": "intermediate_size"}
LATER |= {"ffn_dim": "intermediate_size", "num_layers": "num_hidden_layers"}
LATER |= {"num_heads": "num_attention_heads"}
LATER |= dict.fromkeys(("num_local_experts", "n_routed_experts", "moe_num_experts"), "num_experts")
KEYS = ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"]
KEYS += ["num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"]
KEYS += ["num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob"]
KEYS += ["routed_scaling_factor", "n_group", "topk_group", "rms_norm_eps", "tie_word_embeddings"]
KEYS += ["kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"]
KEYS += ["scale_depth", "dim_model_base", "query_pre_attn_scalar", "rope_theta"]
KEYS += ["sliding_window_pattern", "num_kv_shared_layers", "mamba_d_ssm"]
KEYS += ["vocab_size_per_layer_input", "first_k_dense_replace", "rope_parameters"]


def of_class(kind: str) -> dict[str, Any]:
    from transformers import CONFIG_MAPPING

    found = CONFIG_MAPPING[kind]
    found = getattr(found, "sub_configs", {}).get("text_config", found)
    rope = positions(found)
    values = {name: getattr(found, name, None) for name in dir(found) if name in {*KEYS, *LATER}}
    theta = found.default_theta
    values["rope_theta"] = theta["global"] if isinstance(theta, dict) else theta
    values = {LATER.get(name, name): value for name, value in values.items()}
    values = {k: v for k, v in values.items() if isinstance(v, int | float) and k in KEYS}
    return values | {"rope_parameters": rope} if rope else values


def positions(found: Any) -> dict[str, Any]:
    """The `rope_parameters` of a class, without bases that `rope_theta` of a file would change;
    none where positions are not scaled."""
    whole = getattr(found(rope_theta=7.0), "rope_parameters", None) or {}
    parts = [part for part in (whole, *whole.values()) if isinstance(part, dict)]
    if all(part.get("rope_type", "default") == "default" for part in parts):
        return {}
    for part in parts:
        if part.get("rope_theta") == 7.0:
            del part["rope_theta"]
    return whole


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("kinds", nargs="*", help="model types beside those in the file")
    given = parser.parse_args()
    table = json.loads(given.path.read_text(encoding="utf-8")) if given.path.exists() else {}
    known = {kind for row in table.values() for kinds in row.values() for kind in kinds.split()}
    found: dict[str, dict[str, str]] = {key: {} for key in KEYS}
    for kind in sorted(known | {*given.kinds}):
        for key, value in of_class(kind).items():
            row, shown = found[key], json.dumps(value)
            row[shown] = f"{row[shown]} {kind}" if shown in row else kind
    given.path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
