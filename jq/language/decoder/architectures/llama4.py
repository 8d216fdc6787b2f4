"""Llama 4: chunks in three of four layers, and in the fourth queries that grow with the position
and do not turn; experts, in some layers, of which a token takes one, and one that all take."""

from jq.language.decoder.architectures._base import HUGGING_FACE, Architecture, Key, hugging_face

_STACKS = {
    "layers/{i}/mlp/experts/*/gate_up/weight": "model.layers.{i}.feed_forward.experts.gate_up_proj",
    "layers/{i}/mlp/experts/*/down/weight": "model.layers.{i}.feed_forward.experts.down_proj",
}
_NAMES = hugging_face(
    "mlp/router=feed_forward.router mlp/gate=feed_forward.gate_proj",
    "mlp/up=feed_forward.up_proj mlp/down=feed_forward.down_proj",
    "mlp/shared/gate=feed_forward.shared_expert.gate_proj",
    "mlp/shared/up=feed_forward.shared_expert.up_proj",
    "mlp/shared/down=feed_forward.shared_expert.down_proj",
)
Architecture(
    "llama4",
    ("llama4_text",),
    hugging_face=HUGGING_FACE | _NAMES | _STACKS,
    swapped=tuple(_STACKS),
    gguf_pairs="neighbours",
    pairs="neighbours",
    normal_shares=False,
    gguf_normal_shares=False,
    own={"router": "sigmoid", "shares_go_in": True, "chunks": True},
    keys={"unit_heads": Key("use_qk_norm", lambda get: True, True)},
    windows={"llama4_text": ("types", 8192)},
    window=8192,
    global_every=4,
    positions="listed",
    heat=(
        Key(
            lambda get: get("attn_scale", 0.1) if get("attn_temperature_tuning", True) else 0.0,
            lambda get: 0.1,
        ),
        Key("floor_scale", lambda get: 8192, 8192),
        1.0,
        True,
    ),
    defaults={"rms_norm_eps": 1e-5, "head_dim": 128, "rope_theta": 500000.0},
)
