"""Qwen 3 Next and Qwen 3.5: the gated delta rule, and attention with a gate in each 4th layer."""

from dataclasses import replace

from jq.language.decoder.architectures._base import (
    EXPERTS,
    HUGGING_FACE,
    SHARED_EXPERT,
    Architecture,
    Key,
    hugging_face,
)

_DELTA = hugging_face(
    "delta/qkvz=linear_attn.in_proj_qkvz delta/rates=linear_attn.in_proj_ba",
    "delta/qkv=linear_attn.in_proj_qkv delta/gate=linear_attn.in_proj_z",
    "delta/beta=linear_attn.in_proj_b delta/rate=linear_attn.in_proj_a",
    "delta/filter=linear_attn.conv1d delta/inner_norm=linear_attn.norm",
    "delta/output=linear_attn.out_proj",
) | {
    "layers/{i}/delta/decay/weight": "model.layers.{i}.linear_attn.A_log",
    "layers/{i}/delta/step/bias": "model.layers.{i}.linear_attn.dt_bias",
}
_NEXT = Architecture(
    "qwen3next",
    ("qwen3_next",),
    hugging_face=HUGGING_FACE | EXPERTS | SHARED_EXPERT | _DELTA,
    gguf={},
    one_plus=True,
    tied=False,
    mixers={"linear_attention": ("delta",)},
    recurrent_but=4,
    own={"gated_heads": True},
    keys={
        "delta_groups": Key("linear_num_key_heads", "ssm.group_count", 16),
        "delta_heads": Key("linear_num_value_heads", "ssm.time_step_rank", 32),
        "delta_key": Key("linear_key_head_dim", "ssm.state_size", 128),
        "delta_value": Key("linear_value_head_dim", "ssm.state_size", 128),
        "width": Key("linear_conv_kernel_dim", "ssm.conv_kernel", 4),
    },
    defaults={"rms_norm_eps": 1e-6, "head_dim": 256, "partial_rotary_factor": 0.25},
)
replace(
    _NEXT,
    name="qwen35",
    model_types=("qwen3_5_text", "qwen3_5_moe_text"),
    normal_shares=True,
)
