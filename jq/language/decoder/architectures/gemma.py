"""Gemma: norms as what is added to 1, and from the second on norms around each block."""

from dataclasses import replace

from jq.language.decoder.architectures._base import HUGGING_FACE, Architecture

_NORMS_AROUND = {
    "layers/{i}/attention/norm_after/weight": "model.layers.{i}.post_attention_layernorm.weight",
    "layers/{i}/mlp/norm/weight": "model.layers.{i}.pre_feedforward_layernorm.weight",
    "layers/{i}/mlp/norm_after/weight": "model.layers.{i}.post_feedforward_layernorm.weight",
}
_GEMMA = Architecture(
    "gemma",
    ("gemma",),
    activation="gelu_tanh",
    scaled_embedding=True,
    one_plus=True,
    defaults={"rms_norm_eps": 1e-6, "head_dim": 256},
)
_GEMMA2 = replace(
    _GEMMA,
    name="gemma2",
    model_types=("gemma2",),
    hugging_face=HUGGING_FACE | _NORMS_AROUND,
    global_every=2,
    window=4096,
    caps=(50.0, 30.0),
    wide_scale_layers=46,
    windows={"gemma2": ("types", 4096)},
    defaults=_GEMMA.defaults | {"query_pre_attn_scalar": 256},
)
_SIZES = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131072,
    "rope_theta": 1e6,
}
replace(
    _GEMMA,
    name="gemma3",
    model_types=("gemma3_text",),
    hugging_face=_GEMMA2.hugging_face,
    global_every=6,
    local_base=10000.0,
    wide_scale_layers=62,
    windows={"gemma3_text": ("types", 4096)},
    defaults=_GEMMA2.defaults | _SIZES,  # which models that see as well leave out
)
