"""Gemma: norms as what is added to 1, and from the second on norms around each block."""

from dataclasses import replace

from jq.language.decoder.architectures._base import HUGGING_FACE, Architecture

_NORMS_AROUND = {
    "layers/{i}/attention/norm_after/weight": "model.layers.{i}.post_attention_layernorm.weight",
    "layers/{i}/mlp/norm/weight": "model.layers.{i}.pre_feedforward_layernorm.weight",
    "layers/{i}/mlp/norm_after/weight": "model.layers.{i}.post_feedforward_layernorm.weight",
}
_GEMMA = Architecture(
    "gemma", ("gemma",), activation="gelu_tanh", scaled_embedding=True, one_plus=True
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
)
replace(
    _GEMMA,
    name="gemma3",
    model_types=("gemma3_text",),
    hugging_face=_GEMMA2.hugging_face,
    global_every=6,
    local_base=10000.0,
    wide_scale_layers=62,
)
