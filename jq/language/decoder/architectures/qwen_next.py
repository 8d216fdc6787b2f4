"""Qwen 3 Next and Qwen 3.5: the gated delta rule, and attention with a gate in each 4th layer."""

from dataclasses import replace

from jq.language.decoder.architectures._base import (
    EXPERTS,
    GGUF,
    HUGGING_FACE,
    SHARED_EXPERT,
    Architecture,
    Key,
    gguf,
    hugging_face,
    without,
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
_GGUF = gguf(
    "mlp/norm=post_attention_norm delta/qkvz=ssm_in delta/rates=ssm_ba delta/step=ssm_dt",
    "delta/qkv=attn_qkv delta/gate=attn_gate delta/filter=ssm_conv1d",
    "delta/inner_norm=ssm_norm delta/output=ssm_out",
) | {"layers/{i}/delta/decay/weight": "blk.{i}.ssm_a"}
_NEXT = Architecture(
    "qwen3next",
    ("qwen3_next",),
    hugging_face=HUGGING_FACE | EXPERTS | SHARED_EXPERT | _DELTA,
    gguf=without(GGUF, "attention/norm_after", "attention/qkv") | _GGUF,
    one_plus=True,
    tied=False,
    mixers={"linear_attention": ("delta",)},
    recurrent_but=4,
    own={"gated_heads": True},
    keys={
        "delta_groups": Key("linear_num_key_heads", "ssm.group_count", 16),
        "delta_heads": Key("linear_num_value_heads", "ssm.time_step_rank", 32),
        "delta_key": Key("linear_key_head_dim", "ssm.state_size", 128),
        "delta_value": Key(
            "linear_value_head_dim",
            lambda get: get("ssm.inner_size") // max(get("ssm.time_step_rank"), 1),
            128,
        ),
        "plain_rates": Key(lambda get: False, lambda get: True),
        "width": Key("linear_conv_kernel_dim", "ssm.conv_kernel", 4),
    },
    defaults={"rms_norm_eps": 1e-6, "head_dim": 256, "partial_rotary_factor": 0.25},
)
replace(
    _NEXT,
    name="qwen35",
    model_types=("qwen3_5_text", "qwen3_5_moe_text"),
    gguf={},  # where heads stand in an order of their own
    normal_shares=True,
)
