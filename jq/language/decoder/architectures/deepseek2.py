"""DeepSeek 2 and others with multi-head latent attention: GLM 4.7 Flash, Youtu, MiniCPM 3."""

from math import log, sqrt

from jq.language.decoder.architectures import names
from jq.language.decoder.architectures._base import FULL, RMS, SHARES, Architecture, Get, Key
from jq.language.decoder.architectures.routed import CHOSEN, FIRST, TYPES

_YARN = "rope.scaling."
_LATENT = names.ALL.but(
    "attention/query=-,- attention/key=-,- attention/value=-,- attention/output=-,-",
    "latent/query=attn_q,self_attn.q_proj latent/query_down=attn_q_a,self_attn.q_a_proj",
    "latent/query_up=attn_q_b,self_attn.q_b_proj latent/key_up=attn_k_b, latent/value_up=attn_v_b,",
    "latent/query_norm=attn_q_a_norm,self_attn.q_a_layernorm",
    "latent/kv_down=attn_kv_a_mqa,self_attn.kv_a_proj_with_mqa",
    "latent/kv_norm=attn_kv_a_norm,self_attn.kv_a_layernorm",
    "latent/kv_up=attn_kv_b,self_attn.kv_b_proj latent/output=attn_output,self_attn.o_proj",
    names.EXPERTS,
    names.gated("mlp/shared", "mlp.shared_experts."),
)
_HEAD = Key(
    lambda get: get("qk_nope_head_dim") + get("qk_rope_head_dim"),
    lambda get: get("attention.key_length_mla", 0) or get("attention.key_length"),
)
_SIZES = {
    "head": _HEAD,
    "rank": Key("kv_lora_rank", "attention.kv_lora_rank"),
    "query_rank": Key("q_lora_rank", "attention.q_lora_rank", 0),
    "turned": Key("qk_rope_head_dim", "rope.dimension_count"),
    "value": Key(
        lambda get: get("v_head_dim", get("hidden_size") // get("num_attention_heads")),
        lambda get: get("attention.value_length_mla", 0) or get("attention.value_length"),
    ),
    "latent_epsilon": Key(lambda get: 1e-6, RMS),
}


def _scaled(form: str, get: Get, weight: float, factor: str) -> float:
    """The factor of scores where positions are scaled by a factor (Peng et al. 2023)."""
    grown = weight * log(max(get(factor, 1.0), 1.0)) + 1
    return float(grown**2 / sqrt(_HEAD.read(form, get)))


_DEEPSEEK = Architecture(
    "deepseek2",
    {"deepseek_v2": FULL},
    experts=("num_experts", "n_routed_experts"),
    names=_LATENT.but("mlp/router/preference:exp_probs_b.bias,"),
    own={"pairs": "neighbours"},
    yarn_scale=1.0,
    mixers={"": ("latent",)},
    only={"topk_method": ("greedy",)},
    defaults={"routed": FIRST},
    of_type={"glm4_moe_lite": {"routed": TYPES | {"first layer": 1}}},
    keys=_SIZES
    | {
        "normal_shares": Key(lambda get: False, SHARES.gguf, False),
        "attention_scale": Key(
            lambda get: _scaled("hugging_face", get, 0.1 * get("mscale_all_dim", 0.0), "factor"),
            lambda get: _scaled(
                "gguf", get, get(f"{_YARN}yarn_log_multiplier", 0.0), f"{_YARN}factor"
            ),
        ),
        "share_scale": Key("routed_scaling_factor", "expert_weights_scale", 1.0),
        "groups": Key(lambda get: 1, "expert_group_count", 1),
        "groups_used": Key(lambda get: 1, "expert_group_used_count", 1),
        "router": Key(
            lambda get: "softmax",
            lambda get: "sigmoid" if get("expert_gating_func", 1) == 2 else "softmax",
        ),
    },
)
_DEEPSEEK.like(
    "deepseek3",
    dict.fromkeys(("deepseek_v3", "glm4_moe_lite", "kimi_k2", "youtu"), FULL),
    experts=("num_local_experts", "n_routed_experts"),
    names=_LATENT.but("mlp/router/preference:,mlp.gate.e_score_correction_bias")._replace(gguf={}),
    own={},
    only={"topk_method": ("noaux_tc",)},
    keys={
        "pairs": Key(
            lambda get: "neighbours" if get("rope_interleave", True) else "halves",
            lambda get: "neighbours",
        ),
        **CHOSEN,
        "groups": Key("n_group", "expert_group_count", 8),
        "groups_used": Key("topk_group", "expert_group_used_count", 4),
    },
)
_DEEPSEEK.like(
    "minicpm3",
    {"minicpm3": FULL},
    names=_LATENT,
    own={},
    only={},
    keys={
        "embedding_scale": Key("scale_emb", lambda get: 12.0, 12.0),
        "residual_scale": Key(
            lambda get: get("scale_depth", root := sqrt(get("num_hidden_layers"))) / root,
            lambda get: 1.4 / sqrt(get("block_count")),
        ),
        "logit_scale": Key(
            lambda get: get("dim_model_base", wide := get("hidden_size")) / wide,
            lambda get: 256 / get("embedding_length"),
        ),
    },
)
