"""Ernie 4.5, Hunyuan, and models whose experts are chosen as those of DeepSeek 3 are, by chances of
their own and a preference, behind attention like Llama's: GLM 4.5, dots.llm1, Solar Open, K-EXAONE
and MiniMax M2."""

from jq.language.decoder.architectures import _base as base
from jq.language.decoder.architectures import names
from jq.language.decoder.architectures._base import FULL, SHARES, Architecture, Key, fixed

_ROUTED = names.ALL.but(
    names.EXPERTS,
    names.gated("mlp/shared", "mlp.shared_experts."),
    "mlp/router/preference:exp_probs_b.bias,mlp.gate.e_score_correction_bias",
)
FIRST = {"first_k_dense_replace": 0}
TYPES = {"mlp_layer_types": base.LISTED}
CHOSEN = {
    "normal_shares": SHARES,
    "share_scale": Key("routed_scaling_factor", "expert_weights_scale", 1.0),
    "groups": Key("n_group", "expert_group_count", 1),
    "groups_used": Key("topk_group", "expert_group_used_count", 1),
    "router": fixed("sigmoid"),
}
_GLM = Architecture(
    "glm4moe",
    {"glm4_moe": FULL},
    experts=("num_local_experts", "n_routed_experts"),
    names=_ROUTED.but(names.NORM_BETWEEN),
    keys=CHOSEN,
    switches={"norms": ("use_qk_norm", False)},
    defaults={"partial_rotary_factor": 0.5, "routed": FIRST},
)
# Whole heads turn. GGUF files of Solar Open are of `glm4moe`.
_WHOLE = {"routed": FIRST, "partial_rotary_factor": None, "max_window_layers": 62}
_KINDS = {"dots1": ("behind", 4096), "solar_open": FULL}
_DOTS = _GLM.like(
    "dots1",
    _KINDS,
    names=_ROUTED,
    switches={"norms": ("use_qk_norm", True)},
    defaults=_WHOLE,
    of_type={
        "dots1": {"norm_topk_prob": 0},
        "solar_open": {"use_qk_norm": False, "partial_rotary_factor": 1.0, "routed": {}},
    },
)
_DOTS.like(
    "exaone-moe",
    {"exaone_moe": ("types", 4096)},
    experts=("num_experts",),
    switches={"norms": base.ALWAYS},
    names=_ROUTED.but("mlp/router/preference:,mlp.e_score_correction_bias"),
    positions="windowed",
    global_every=4,
    defaults={"routed": TYPES | FIRST},
)
_BIAS = "mlp/router/preference:exp_probs_b.bias,block_sparse_moe.e_score_correction_bias"
_DOTS.like(
    "minimax-m2",
    {"minimax_m2": FULL},
    experts=("num_local_experts", "num_experts"),
    names=names.ALL.but(_BIAS),
    own={"norms_of_all_heads": True},
    keys={"share_scale": Key(lambda get: 1.0, "expert_weights_scale", 1.0)},
    switches={"norms": base.ALWAYS},
    defaults={"rotary_dim": 0, "partial_rotary_factor": 1.0, "routed": {}},
)
# Phi 3.5 with experts. GGUF files are read as llama.cpp reads them, by the chances of all experts.
Architecture(
    "phimoe",
    {"phimoe": ("all", None)},
    experts=("num_local_experts",),
    own={"norm": "layer"},
    only={"num_experts_per_tok": (2,)},
    switches={"head": ("lm_head_bias", False)},
    keys={
        "epsilon": Key("rms_norm_eps", base.LAYER.gguf, 1e-5),
        "normal_shares": fixed(False, True),
        "reach": Key(lambda get: 2 * get("router_jitter_noise", 0.01), lambda get: 0.0),
    },
)
_ERNIE = Architecture(
    "ernie4_5-moe",
    {"ernie4_5_moe": FULL},
    experts=("num_experts", "moe_num_experts"),
    names=_ROUTED.but("mlp/router/preference:,mlp.moe_statics.e_score_correction_bias"),
    own={"pairs": "neighbours"},
    only={"moe_norm_min": (1e-12,)},
    switches=dict.fromkeys(("attention", "mlp", "head"), ("use_bias", False)),
    keys={"shared_experts": Key("moe_num_shared_experts", "expert_shared_count", 2)},
    defaults={
        "routed": {"moe_layer_interval": 1, "moe_layer_start_index": 1, "moe_layer_end_index": -1}
    },
)
_ERNIE.like("ernie4_5", {"ernie4_5": FULL}, names=names.ALL, only={})
_HUNYUAN = Architecture(
    "hunyuan-dense",
    {"hunyuan_v1_dense": FULL},
    names=names.ALL.but(
        *(f"attention/{n}_norm=,self_attn.{n}_layernorm" for n in ("query", "key"))
    ),
    own={"turned_first": True, "normed_heads": True},
    switches={"norms": base.ALWAYS},
    defaults={"alpha": 0.0},
)
_HUNYUAN.like(
    "hunyuan-moe",
    {"hunyuan_v1_moe": FULL},
    experts=("num_local_experts", "num_experts"),
    names=_HUNYUAN.names.but(
        names.EXPERTS, "mlp/router=,mlp.gate.wg", names.gated("mlp/shared", "mlp.shared_mlp.")
    ),
)
