"""LFM 2: short convolutions, and attention in some layers."""

from jq.language.decoder.architectures._base import (
    GGUF,
    HUGGING_FACE,
    Architecture,
    Key,
    gguf,
    hugging_face,
)

_NAMES = hugging_face(
    "attention/norm=operator_norm attention/output=self_attn.out_proj",
    "attention/query_norm=self_attn.q_layernorm attention/key_norm=self_attn.k_layernorm",
    "convolution/input=conv.in_proj convolution/filter=conv.conv",
    "convolution/output=conv.out_proj mlp/norm=ffn_norm mlp/gate=feed_forward.w1",
    "mlp/up=feed_forward.w3 mlp/down=feed_forward.w2",
)
_GGUF = gguf(
    "convolution/input=shortconv.in_proj convolution/filter=shortconv.conv",
    "convolution/output=shortconv.out_proj",
)
Architecture(
    "lfm2",
    ("lfm2",),
    gguf=GGUF | _GGUF | {"norm/weight": "token_embd_norm.weight"},
    hugging_face=HUGGING_FACE | _NAMES | {"norm/weight": "model.embedding_norm.weight"},
    epsilon=Key("norm_eps", "attention.layer_norm_rms_epsilon", 1e-5),
    mixers={"conv": ("convolution",)},
    keys={"width": Key("conv_L_cache", "shortconv.l_cache", 3)},
    defaults={"norm_eps": 1e-5, "rope_theta": 1e6},
)
