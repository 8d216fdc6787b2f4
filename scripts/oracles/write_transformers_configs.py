#!/usr/bin/env python3
"""Writes tests/language/decoder/transformers_configs.json: which tokens each layer sees, and the
rotary frequencies, of configs as `transformers` reads them.

    pip install torch transformers   # elsewhere: the tests need neither
    python scripts/oracles/write_transformers_configs.py \
        tests/language/decoder/transformers_configs.json

Windows are read off the attention weights of a random model, so that no key of a config is trusted.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

BASE = {
    "vocab_size": 16,
    "hidden_size": 16,
    "intermediate_size": 8,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "pad_token_id": 0,
}
KINDS = ["llama", "gemma", "mistral", "mixtral", "phi3", "qwen2", "qwen3", "qwen3_moe"]
KINDS += ["gemma2", "gemma3_text", "exaone4", "gpt_oss", "smollm3", "starcoder2"]
# Whose heads turn by `partial_rotary_factor`, or as a whole, where positions are not scaled.
TURNED = ["llama", "mistral", "qwen2", "olmo2", "gemma2", "granite", "lfm2", "llama4_text"]
TURNED += ["phi3", "glm4", "phi", "stablelm", "qwen3_next"]
TYPES = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
KEYS = {
    "sliding_window": (3, None, "missing"),
    "use_sliding_window": (True, False, "missing"),
    "max_window_layers": (0, 2, "missing"),
    "layer_types": (TYPES, "missing"),
}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0}
YARN |= {"original_max_position_embeddings": 16}
PART = {"rope_theta": 100.0, "partial_rotary_factor": 0.5}
LONG = {"rope_type": "longrope", "rope_theta": 100.0}
LONG |= {"short_factor": [1.0, 1.5, 2.0, 2.5], "long_factor": [2.0] * 4}
ROPES: list[dict[str, Any]] = [
    YARN,
    YARN | {"truncate": False},
    YARN | {"truncate": True},
    YARN | {"mscale": 1.0, "mscale_all_dim": 0.5},
    YARN | {"mscale": 0.707, "mscale_all_dim": 0.707},
    YARN | {"mscale": 1.0},
    YARN | {"mscale_all_dim": 1.0},
    YARN | {"mscale": 1.0, "mscale_all_dim": 0.5, "attention_factor": 1.25},
    YARN | {"attention_factor": 1.25, "truncate": False},
    YARN | {"beta_fast": 8.0, "beta_slow": 2.0, "truncate": False},
    YARN | {"factor": 1.0, "mscale": 1.0, "mscale_all_dim": 0.5},
    YARN | {"factor": 0.5},
    YARN | {"rope_theta": 1e6, "truncate": False},
    PART | {"rope_type": "proportional"},
    PART | {"rope_type": "proportional", "factor": 2.5},
    PART | {"rope_type": "linear", "factor": 2.5},
    PART | {"rope_type": "dynamic", "factor": 2.5},
    YARN | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 2.0},
    LONG | {"factor": 4.0, "original_max_position_embeddings": 16},
    LONG | {"attention_factor": 1.5, "original_max_position_embeddings": 16},
]
COUNT = 8
# Which key says how many experts there are, and where the context that positions are scaled from
# may stand: above the keys of positions, and among them.
WITH_EXPERTS = ["mixtral", "qwen2_moe", "qwen3_moe", "qwen3_next", "gpt_oss", "llama4_text"]
WITH_EXPERTS += ["granitemoe", "granitemoehybrid", "deepseek_v2", "deepseek_v3"]
EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")
ORIGINAL = "original_max_position_embeddings"
CONTEXTS: list[dict[str, Any]] = [
    {"rope_parameters": LONG},
    {"rope_parameters": LONG | {ORIGINAL: 16}},
    {"rope_parameters": LONG, ORIGINAL: 32},
    {"rope_parameters": LONG | {ORIGINAL: 16}, ORIGINAL: 32},
    {"rope_parameters": LONG | {ORIGINAL: 16, "factor": 4.0}},
    {"rope_parameters": LONG | {"factor": 1.0}, ORIGINAL: 32},
]
OF_PHI3 = {"rope_parameters": LONG | {"rope_type": "yarn"}, ORIGINAL: 32}  # its first files' name


TABLE = Path(__file__).parents[2] / "jq/language/decoder/architectures/defaults.json"


def seen(kind: str, changes: dict[str, Any]) -> list[int] | None:
    """Number of `COUNT` tokens that the last one sees in each layer; None where it is refused."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    values = {**BASE, **changes, "model_type": kind}
    if "mix" in kind or "moe" in kind:
        values |= {"num_local_experts": 2, "num_experts": 2, "num_experts_per_tok": 1}
        values |= {"moe_intermediate_size": 8}
    try:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(json.dumps(values))
            config = AutoConfig.from_pretrained(folder)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        with torch.no_grad():
            found = model(torch.arange(1, COUNT + 1)[None], output_attentions=True, use_cache=False)
    except Exception as error:
        print(kind, changes, type(error).__name__, str(error)[:60])
        return None
    return [int((a[0, 0, -1] > 0).sum()) for a in found.attentions]


def turned(kind: str, scaling: str) -> int:
    """Pairs of a head that are turned, of 8 elements, with a factor of 0.5."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    parameters = {"rope_type": scaling, "rope_theta": 100.0, "factor": 2.0}
    given = {**BASE, "partial_rotary_factor": 0.5, "rope_parameters": parameters}
    config = AutoConfig.for_model(kind, **given)
    model = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config)
    return len(model.model.rotary_emb.inv_freq)


def experts(kind: str) -> list[Any]:
    """Counts of experts by three keys, and the one that the model reads."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    config_class = type(AutoConfig.for_model(kind))
    source = sys.modules[MODEL_FOR_CAUSAL_LM_MAPPING[config_class].__module__].__file__ or ""
    read = re.search(rf"config\.({'|'.join(EXPERT_KEYS)})\b", Path(source).read_text())
    assert read, kind
    found = []
    for counts in product((None, 0, 4), (None, 0, 4), (None, 3)):
        given = {k: n for k, n in zip(EXPERT_KEYS, counts, strict=True) if n is not None}
        found.append([given, getattr(config_class.from_dict(dict(given)), read[1])])
    return found


def contexts(kind: str) -> list[Any]:
    """Original contexts of longrope and the scale of its positions, of 8,192 tokens."""
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    found = []
    for each in [*CONTEXTS, *([OF_PHI3] if kind == "phi3" else [])]:
        given = {**BASE, "max_position_embeddings": 8192, **each}
        config = AutoConfig.for_model(kind, **json.loads(json.dumps(given)))
        scale = ROPE_INIT_FUNCTIONS["longrope"](config)[1]
        found.append([each, config.rope_parameters[ORIGINAL], scale])
    return found


def defaults() -> dict[str, Any]:
    """Whole configs of classes, as of files that leave everything out, by model type."""
    from transformers import AutoConfig, PreTrainedConfig

    rows = json.loads(TABLE.read_text(encoding="utf-8"))["hidden_size"].values()
    found = {}
    for kind in sorted(" ".join(rows).split()):
        config = AutoConfig.for_model(kind)
        values = json.loads(config.get_text_config().to_json_string(use_diff=False))
        plain = PreTrainedConfig().to_dict().keys()
        found[kind] = {key: value for key, value in values.items() if key not in plain}
    return found


def drop_missing(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value != "missing"}


def main() -> None:
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    windows = {}
    for kind in KINDS:
        changes = [dict(zip(KEYS, values, strict=True)) for values in product(*KEYS.values())]
        windows[kind] = [seen(kind, drop_missing(each)) for each in changes]
    ropes = []
    for given in ROPES:
        config = AutoConfig.for_model("llama", **BASE, rope_parameters=dict(given))
        frequencies, scale = ROPE_INIT_FUNCTIONS[str(given["rope_type"])](config)
        ropes.append([given, [float(f"{f:.7g}") for f in frequencies], scale])
    found = {"base": BASE, "count": COUNT, "keys": KEYS, "windows": windows, "ropes": ropes}
    plain = ("phi3",)  # which has no positions that are scaled so
    found["turned"] = {
        kind: {way: turned(kind, way) for way in ("default", *["linear"] * (kind not in plain))}
        for kind in TURNED
    }
    found["experts"] = {kind: experts(kind) for kind in WITH_EXPERTS}
    found["contexts"] = {kind: contexts(kind) for kind in ("llama", "phi3")}
    found["defaults"] = defaults()
    Path(sys.argv[1]).write_text(json.dumps(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
