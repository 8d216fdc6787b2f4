"""Falcon H1: state-space layers and attention side by side, with a factor for each product."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jq.language.decoder.architectures._base import (
    GGUF,
    HUGGING_FACE,
    Architecture,
    Key,
    hugging_face,
)
from jq.language.decoder.architectures.granite_hybrid import GGUF_MAMBA, MAMBA, SIZES


def _scales(get: Callable[..., Any]) -> dict[str, Any]:
    """Products are linear: what comes in or goes out multiplied is the result multiplied. GGUF
    files hold weights that were."""
    within, ssm = get("attention_in_multiplier", 1.0), get("ssm_multipliers", [1.0] * 5)
    gate, down = get("mlp_multipliers", [1.0, 1.0])
    heads, groups = get("mamba_n_heads", 128), get("mamba_n_groups", 1)
    wide = get("mamba_d_ssm", 0) or int(get("mamba_expand", 2) * get("hidden_size"))
    counts = [wide, wide, *[groups * get("mamba_d_state", 256)] * 2, heads]
    return {
        "layers/{i}/attention/query": within,
        "layers/{i}/attention/key": within * get("key_multiplier", 1.0),
        "layers/{i}/attention/value": within,
        "layers/{i}/attention/output": get("attention_out_multiplier", 1.0),
        "layers/{i}/mamba/input": np.repeat(ssm, counts) * get("ssm_in_multiplier", 1.0),
        "layers/{i}/mamba/output": get("ssm_out_multiplier", 1.0),
        "layers/{i}/mlp/gate": gate,
        "layers/{i}/mlp/down": down,
    }


_NAMES = hugging_face(
    "mlp/norm=pre_ff_layernorm mlp/gate=feed_forward.gate_proj mlp/up=feed_forward.up_proj",
    "mlp/down=feed_forward.down_proj",
)
Architecture(
    "falcon-h1",
    ("falcon_h1",),
    # llama.cpp names this one without a suffix.
    gguf=GGUF | GGUF_MAMBA | {"layers/{i}/mlp/norm/weight": "blk.{i}.ffn_norm"},
    hugging_face=HUGGING_FACE | MAMBA | _NAMES | {"norm/weight": "model.final_layernorm.weight"},
    mixers={"": ("mamba", "attention")},
    keys=SIZES
    | {
        "embedding_scale": Key("embedding_multiplier", lambda get: 1.0, 1.0),
        "logit_scale": Key("lm_head_multiplier", lambda get: 1.0, 1.0),
        "inner_norm": Key("mamba_rms_norm", lambda get: False, False),
        "norm_before_gate": Key("mamba_norm_before_gate", lambda get: False, True),
    },
    scales=_scales,
)
