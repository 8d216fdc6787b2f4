"""Llama, and the models that share its network, or all of it but a few numbers."""

from dataclasses import replace
from math import sqrt

from jq.language.decoder.architectures._base import HUGGING_FACE, Architecture, Key, hugging_face

_LLAMA = Architecture(
    "llama",
    ("llama", "mistral", "mixtral"),
    gguf_pairs="neighbours",
    windows={"mistral": ("types", 4096), "mixtral": ("all", None)},
)
replace(
    _LLAMA,
    name="mistral3",
    model_types=("ministral3", "ministral"),
    windows={"ministral3": ("all", None), "ministral": ("types", 4096)},
    heat=(
        Key("llama_4_scaling_beta", "attention.temperature_scale", 0.0),
        Key("original_max_position_embeddings", "rope.scaling.original_context_length", 16384),
        0.0,
        False,
    ),
)
replace(
    _LLAMA,
    name="smollm3",
    model_types=("smollm3",),
    windows={"smollm3": ("asked", None)},
    positions="listed",
    defaults={"rms_norm_eps": 1e-6, "rope_theta": 2e6},
)
_SCALES = {
    "embedding_scale": Key("embedding_multiplier", "embedding_scale", 1.0),
    "residual_scale": Key("residual_multiplier", "residual_scale", 1.0),
    "attention_scale": Key("attention_multiplier", "attention.scale", 1.0),
    "logit_scale": Key(
        lambda get: 1 / get("logits_scaling", 1.0), lambda get: 1 / get("logit_scale", 1.0)
    ),
}
_GRANITE = replace(_LLAMA, name="granite", model_types=("granite",), windows={}, keys=_SCALES)
STACKS = hugging_face(
    "mlp/router=block_sparse_moe.router.layer mlp/shared/gate_up=shared_mlp.input_linear",
    "mlp/shared/down=shared_mlp.output_linear",
) | {
    f"layers/{{i}}/mlp/experts/*/{ours}/weight": (
        f"model.layers.{{i}}.block_sparse_moe.{theirs}.weight"
    )
    for ours, theirs in (("gate_up", "input_linear"), ("down", "output_linear"))
}
replace(
    _GRANITE, name="granitemoe", model_types=("granitemoe",), hugging_face=HUGGING_FACE | STACKS
)
replace(
    _GRANITE,
    name="minicpm",
    model_types=("minicpm",),
    keys={
        "embedding_scale": Key("scale_emb", "embedding_scale", 1.0),
        "residual_scale": Key(
            lambda get: get("scale_depth") / sqrt(get("num_hidden_layers")), "residual_scale", 1.0
        ),
        "logit_scale": Key(
            lambda get: get("dim_model_base") / get("hidden_size"),
            lambda get: 1 / get("logit_scale", 1.0),
        ),
    },
)
