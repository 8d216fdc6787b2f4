"""Models whose layers, or some of them, keep a state that does not grow: state-space layers, short
convolutions and the gated delta rule."""

from math import inf
from typing import Any

import numpy as np

from jq.language.decoder.architectures import _base as base
from jq.language.decoder.architectures import names
from jq.language.decoder.architectures.llama import STACKS

_STEPS = ([0.0, inf], [0.0, {"__float__": "Infinity"}])  # as the layer makes them
MAMBA = (
    "mamba/input=ssm_in,mamba.in_proj mamba/filter=ssm_conv1d,mamba.conv1d"
    " mamba/inner_norm=ssm_norm,mamba.norm mamba/output=ssm_out,mamba.out_proj mamba/step=ssm_dt,"
    " mamba/step/bias:,mamba.dt_bias mamba/decay/weight:ssm_a,mamba.A_log"
    " mamba/skip/weight:ssm_d,mamba.D"
)


def _width(get: base.Get) -> int:
    """The width of all heads of a state-space layer."""
    return int(get("mamba_d_ssm", 0) or get("mamba_expand", 2) * get("hidden_size"))


SIZES = {
    "mamba_heads": base.Key("mamba_n_heads", "ssm.time_step_rank", 128),
    "mamba_head": base.Key(
        lambda get: get("mamba_d_head", 0) or _width(get) // get("mamba_n_heads", 128),
        lambda get: get("ssm.inner_size") // max(get("ssm.time_step_rank"), 1),
    ),
    "mamba_groups": base.Key("mamba_n_groups", "ssm.group_count", 1),
    "mamba_size": base.Key("mamba_d_state", "ssm.state_size", 256),
    "width": base.Key("mamba_d_conv", "ssm.conv_kernel", 4),
    "inner_norm": base.Key("mamba_rms_norm", lambda get: False, True),
    "plain_rates": base.fixed(False, True),
}
base.Architecture.registry["granite"].like(
    "granitehybrid",
    {"granitemoehybrid": base.FULL},
    names=names.ALL.but(STACKS, MAMBA),
    keys=SIZES,
    mixers={"linear_attention": ("mamba",), "mamba": ("mamba",)},
    positions="asked",
    only={"time_step_limit": _STEPS},
    defaults={"full_attn_idxs": []},
)


# Falcon H1: state-space layers and attention side by side, with a factor for each product.
def _falcon_scales(get: base.Get) -> dict[str, Any]:
    """Factors of what comes in and of what goes out; in GGUF files weights are multiplied."""
    within, ssm = get("attention_in_multiplier", 1.0), get("ssm_multipliers", [1.0] * 5)
    gate, down = get("mlp_multipliers", [1.0, 1.0])
    heads, groups = get("mamba_n_heads", 128), get("mamba_n_groups", 1)
    counts = [_width(get), _width(get), *[groups * get("mamba_d_state", 256)] * 2, heads]
    return {
        "layers/{i}/attention/query": (within, 1.0),
        "layers/{i}/attention/key": (within, get("key_multiplier", 1.0)),
        "layers/{i}/attention/value": (within, 1.0),
        "layers/{i}/attention/output": (1.0, get("attention_out_multiplier", 1.0)),
        "layers/{i}/mamba/input": (get("ssm_in_multiplier", 1.0), np.repeat(ssm, counts)),
        "layers/{i}/mamba/output": (1.0, get("ssm_out_multiplier", 1.0)),
        "layers/{i}/mlp/gate": (1.0, gate),
        "layers/{i}/mlp/down": (1.0, down),
    }


_FALCON = base.Architecture(
    "falcon-h1",
    {"falcon_h1": base.FULL},
    names=names.ALL.but(
        MAMBA,
        "mlp/norm/weight:ffn_norm,",  # llama.cpp names this one without a suffix
        "mlp/norm=,pre_ff_layernorm /norm/weight:,model.final_layernorm.weight",
        names.gated("mlp", "feed_forward."),
    ),
    mixers={"": ("mamba", "attention")},
    switches={"state_out": ("projectors_bias", False)},
    only={"time_step_limit": _STEPS},
    keys=SIZES
    | {
        "embedding_scale": base.Key("embedding_multiplier", lambda get: 1.0, 1.0),
        "logit_scale": base.Key("lm_head_multiplier", lambda get: 1.0, 1.0),
        "inner_norm": base.Key("mamba_rms_norm", lambda get: False, False),
        "norm_before_gate": base.Key("mamba_norm_before_gate", lambda get: False, True),
    },
    scales=_falcon_scales,
)
_FALCON.like(
    "bamba",
    {"bamba": base.FULL},
    names=_FALCON.names._replace(gguf={}),
    mixers={"linear_attention": ("mamba",)},
    keys={"inner_norm": SIZES["inner_norm"], "norm_before_gate": base.fixed(False)},
    switches={"state_out": base.SWITCHES["state_out"]},
    scales=None,
    defaults={"full_attn_idxs": [], "partial_rotary_factor": 0.5},
)
# LFM 2: short convolutions, and attention in some layers.
_LFM2 = base.Architecture(
    "lfm2",
    {"lfm2": base.FULL},
    activation_key="",
    names=names.ALL.but(
        "/norm/weight:token_embd_norm.weight,model.embedding_norm.weight",
        "attention/norm=,operator_norm attention/output=,self_attn.out_proj",
        "attention/query_norm=,self_attn.q_layernorm attention/key_norm=,self_attn.k_layernorm",
        "convolution/input=shortconv.in_proj,conv.in_proj",
        "convolution/filter=shortconv.conv,conv.conv",
        "convolution/output=shortconv.out_proj,conv.out_proj mlp/norm=,ffn_norm",
        names.gated("mlp", "feed_forward.", "w1 w3 w2"),
    ),
    mixers={"conv": ("convolution",)},
    switches={"norms": base.ALWAYS},
    keys={
        "epsilon": base.Key("norm_eps", base.RMS, 1e-5),
        "width": base.Key("conv_L_cache", "shortconv.l_cache", 3),
    },
)
_LFM2.like(
    "lfm2moe",
    {"lfm2_moe": base.FULL},
    names=_LFM2.names.but(
        "mlp/router=,feed_forward.gate",
        "mlp/router/preference:exp_probs_b.bias,feed_forward.expert_bias",
        names.gated("mlp/experts/{e}", "feed_forward.experts.{e}.", "w1 w3 w2"),
    ),
    keys={
        "router": base.fixed("sigmoid"),
        "normal_shares": base.SHARES,
        "share_scale": base.Key("routed_scaling_factor", "expert_weights_scale", 1.0),
    },
    only={"use_expert_bias": (True,)},
    defaults={"routed": {"num_dense_layers": 2}},
)
# Qwen 3 Next and 3.5: the gated delta rule, and attention with a gate in each 4th layer.
_DELTA = names.ALL.but(
    names.EXPERTS,
    names.SHARED_EXPERT,
    "mlp/norm=post_attention_norm, attention/norm_after=-, attention/qkv=-,",
    "delta/qkvz=ssm_in,linear_attn.in_proj_qkvz delta/rates=ssm_ba,linear_attn.in_proj_ba",
    "delta/qkv=attn_qkv,linear_attn.in_proj_qkv delta/gate=attn_gate,linear_attn.in_proj_z",
    "delta/beta=ssm_beta,linear_attn.in_proj_b delta/rate=ssm_alpha,linear_attn.in_proj_a",
    "delta/filter=ssm_conv1d,linear_attn.conv1d delta/inner_norm=ssm_norm,linear_attn.norm",
    "delta/output=ssm_out,linear_attn.out_proj delta/decay/weight:ssm_a,linear_attn.A_log",
    "delta/step=ssm_dt, delta/step/bias:,linear_attn.dt_bias",
)
_NEXT = base.Architecture(
    "qwen3next",
    {"qwen3_next": base.FULL},
    experts=("num_experts",),
    names=_DELTA,
    one_plus=True,
    mixers={"linear_attention": ("delta",)},
    own={"gated_heads": True},
    switches={"norms": base.ALWAYS},
    keys={
        "normal_shares": base.SHARES,
        "delta_groups": base.Key("linear_num_key_heads", "ssm.group_count", 16),
        "delta_heads": base.Key("linear_num_value_heads", "ssm.time_step_rank", 32),
        "delta_key": base.Key("linear_key_head_dim", "ssm.state_size", 128),
        "delta_value": base.Key(
            "linear_value_head_dim",
            lambda get: get("ssm.inner_size") // max(get("ssm.time_step_rank"), 1),
            128,
        ),
        "plain_rates": base.fixed(False, True),
        "width": base.Key("linear_conv_kernel_dim", "ssm.conv_kernel", 4),
    },
    defaults={"partial_rotary_factor": 0.25, "full_attention_interval": 4} | base.STEPS,
)
# Of GGUF files the heads that share a key are not neighbours, but those of equal rest.
_TILED = {"tiled_heads": base.fixed(False, True), "normal_shares": base.KEYS["normal_shares"]}
_QWEN35 = _NEXT.like("qwen35", {"qwen3_5_text": base.FULL}, keys=_TILED)
_QWEN35.like("qwen35moe", {"qwen3_5_moe_text": base.FULL}, defaults={"routed": {}})
