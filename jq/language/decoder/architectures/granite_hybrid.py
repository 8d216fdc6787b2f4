"""Granite 4: state-space layers, attention in some, and an expert that all tokens take."""

from dataclasses import replace

from jq.language.decoder.architectures._base import (
    GGUF,
    HUGGING_FACE,
    Architecture,
    Key,
    gguf,
    hugging_face,
)
from jq.language.decoder.architectures.llama import STACKS

MAMBA = hugging_face(
    "mamba/input=mamba.in_proj mamba/filter=mamba.conv1d mamba/inner_norm=mamba.norm",
    "mamba/output=mamba.out_proj",
) | {
    "layers/{i}/mamba/decay/weight": "model.layers.{i}.mamba.A_log",
    "layers/{i}/mamba/skip/weight": "model.layers.{i}.mamba.D",
    "layers/{i}/mamba/step/bias": "model.layers.{i}.mamba.dt_bias",
}
GGUF_MAMBA = gguf(
    "mamba/input=ssm_in mamba/filter=ssm_conv1d mamba/inner_norm=ssm_norm",
    "mamba/output=ssm_out mamba/step=ssm_dt",
) | {
    "layers/{i}/mamba/decay/weight": "blk.{i}.ssm_a",
    "layers/{i}/mamba/skip/weight": "blk.{i}.ssm_d",
}
SIZES = {
    "mamba_heads": Key("mamba_n_heads", "ssm.time_step_rank", 128),
    "mamba_head": Key(
        lambda get: (
            get("mamba_d_head", 0)
            or int(get("mamba_expand", 2) * get("hidden_size")) // get("mamba_n_heads", 128)
        ),
        lambda get: get("ssm.inner_size") // max(get("ssm.time_step_rank"), 1),
    ),
    "mamba_groups": Key("mamba_n_groups", "ssm.group_count", 1),
    "mamba_size": Key("mamba_d_state", "ssm.state_size", 256),
    "width": Key("mamba_d_conv", "ssm.conv_kernel", 4),
    "inner_norm": Key("mamba_rms_norm", lambda get: False, True),
    "plain_rates": Key(lambda get: False, lambda get: True),
}
replace(
    Architecture.registry["granite"],
    name="granitehybrid",
    model_types=("granitemoehybrid",),
    gguf=GGUF | GGUF_MAMBA,
    hugging_face=HUGGING_FACE | STACKS | MAMBA,
    keys=Architecture.registry["granite"].keys | SIZES,
    mixers={"linear_attention": ("mamba",), "mamba": ("mamba",)},
    positions="asked",
)
