"""Models whose norms are not Llama's: Gemma's are what is added to 1, and from the second on there
are norms around each block; Phi 2, StableLM and StarCoder 2 take the mean away."""

from math import sqrt
from statistics import NormalDist
from typing import Any

from jq.language.decoder.architectures import _base as base
from jq.language.decoder.architectures import names
from jq.language.decoder.architectures._base import FULL, LAYER, Architecture, Get, Key, fixed


def _scale(widest: int) -> Key:
    """The factor of scores. GGUF files do not say that the model of most layers has another."""

    def by_head(get: Get) -> Any:
        wide = get("embedding_length") / get("attention.head_count")
        return (wide if get("block_count") == widest else get("attention.key_length", wide)) ** -0.5

    return Key(lambda get: get("query_pre_attn_scalar") ** -0.5, by_head)


def _sparse(layers: int) -> list[float]:
    """Shares of what the first layers of Gemma 3n cut off where a config says none."""
    return [0.95] * 10 + [0.0] * (layers - 10) if layers > 10 else []


def _cap(which: str, default: float) -> Key:
    name = f"{which}_logit_softcapping"
    return Key(name, name, default)


_ROOT = Key(lambda get: sqrt(get("hidden_size")), lambda get: sqrt(get("embedding_length")))
_KEYS = {"embedding_scale": _ROOT}
_GEMMA = Architecture("gemma", {"gemma": FULL}, activation="gelu_tanh", keys=_KEYS, one_plus=True)
_GEMMA2 = _GEMMA.like(
    "gemma2",
    {"gemma2": ("types", 4096)},
    activation_key="hidden_activation",
    names=names.ALL.but(names.NORMS_AROUND),
    global_every=2,
    keys={
        "attention_scale": _scale(46),
        "attention_cap": _cap("attn", 50.0),
        "logit_cap": _cap("final", 30.0),
    },
    defaults={"attention.sliding_window": 4096},
)
_GEMMA2.like(
    "vaultgemma",
    {"vaultgemma": ("types", 4096)},
    names=names.ALL.but("mlp/norm=,pre_feedforward_layernorm")._replace(gguf={}),
)
_GEMMA2.like(
    "gemma3",
    {"gemma3_text": ("types", 4096)},
    keys={
        "attention_scale": _scale(62),
        "attention_cap": fixed(0.0),
        "logit_cap": _cap("final", 0.0),
    },
    global_every=6,
    local_base=10000.0,
    switches={"norms": base.ALWAYS},
    defaults={"attention.sliding_window": 0},
)
_PER_LAYER = names.ALL.but(
    names.NORMS_AROUND,
    "per_layer/gate=inp_gate,per_layer_input_gate per_layer/projection=proj,per_layer_projection",
    "per_layer/norm=post_norm,post_per_layer_input_norm",
    "/per_layer/table/weight:per_layer_token_embd.weight,model.embed_tokens_per_layer.weight",
    "/per_layer/projection/weight:per_layer_model_proj.weight,model.per_layer_model_projection.weight",
    "/per_layer/norm/weight:per_layer_proj_norm.weight,model.per_layer_projection_norm.weight",
)
_SHARING = _KEYS | {
    "attention_scale": fixed(1.0),
    "per_layer": Key("hidden_size_per_layer_input", "embedding_length_per_layer_input", 256),
    "per_layer_vocabulary": Key("vocab_size_per_layer_input", lambda get: 0, 0),
    "sharing": Key("num_kv_shared_layers", "attention.shared_kv_layers", 0),
}
Architecture(
    "gemma4",
    {"gemma4_text": ("types", 512)},
    activation="gelu_tanh",
    activation_key="hidden_activation",
    names=_PER_LAYER.but("scalar=layer_output_scale, scalar/weight:,layer_scalar"),
    local_base=10000.0,
    switches={"norms": base.ALWAYS},
    global_every=6,
    only={"enable_moe_block": (False,), "use_bidirectional_attention": ("vision", False)},
    mixers={"sliding_attention": ("attention",), "full_attention": ("wide_attention",)},
    own={"unit_values": True},
    keys=_SHARING
    | {
        "logit_cap": _cap("final", 0.0),
        "head": Key("head_dim", "attention.key_length_swa", 256),
        "wide_head": Key("global_head_dim", "attention.key_length", 512),
        "wide_kv_heads": Key(
            lambda get: get("num_global_key_value_heads", 0) * get("attention_k_eq_v", False),
            lambda get: 0,
        ),
        "values_are_keys": Key("attention_k_eq_v", lambda get: True, False),
    },
    defaults={"full_attention_interval": 6},
)
Architecture(
    "gemma3n",
    {"gemma3n_text": ("types", 512)},
    activation="gelu_tanh",
    activation_key="hidden_activation",
    own={"unit_values": True},
    names=_PER_LAYER.but(
        "streams/predict=altup_predict_coef,altup.prediction_coefs",
        "streams/correct=altup_correct_coef,altup.correction_coefs",
        "streams/router=altup_router,altup.modality_router",
        "streams/norm=altup_router_norm,altup.router_norm streams/scale=altup_correct_scale,",
        "streams/scale/weight:,altup.correct_output_scale",
        "beside/left=laurel_l,laurel.linear_left beside/right=laurel_r,laurel.linear_right",
        "beside/norm=laurel_post_norm,laurel.post_laurel_norm",
        "/spread/*/weight:altup_proj.weight, /gather/*/weight:altup_unembd_proj.weight,",
        *(f"/spread/{i}/weight:,model.altup_projections.{i}.weight" for i in range(8)),
        *(f"/gather/{i}/weight:,model.altup_unembed_projections.{i}.weight" for i in range(8)),
    ),
    only={"altup_active_idx": (0,), "altup_correct_scale": (True,)},
    local_base=10000.0,
    switches={"norms": base.ALWAYS},
    global_every=5,
    keys=_SHARING
    | {
        "logit_cap": _cap("final", 30.0),
        "streams": Key("altup_num_inputs", "altup.num_inputs", 4),
        "rank": Key("laurel_rank", lambda get: 0, 64),
        # GGUF files have how many deviations are cut off, of which that many are below.
        "sparsity": Key(
            lambda get: get("activation_sparsity_pattern", []) or _sparse(get("num_hidden_layers")),
            lambda get: [NormalDist().cdf(cut) for cut in get("activation_sparsity_scale", [])],
        ),
    },
)
_HEADS = "attention/query_norm=,self_attn.q_layernorm attention/key_norm=,self_attn.k_layernorm"
Architecture(
    "phi2",
    {"phi": FULL},
    activation="gelu_tanh",
    names=names.ALL.but(
        "mlp/norm=-,- mlp/gate=-,- attention/output=,self_attn.dense mlp/up=,mlp.fc1",
        "mlp/down=,mlp.fc2 /norm/weight:,model.final_layernorm.weight",
        "/norm/bias:,model.final_layernorm.bias",
        _HEADS,
    ),
    keys={"epsilon": LAYER},
    own={"norm": "layer", "parallel": True, "gated": False},
    switches=dict.fromkeys(("attention", "mlp"), base.ALWAYS)
    | {"head": base.ALWAYS, "norms": ("qk_layernorm", False)},
    defaults={"partial_rotary_factor": 0.5},
)
Architecture(
    "stablelm",
    {"stablelm": FULL},
    names=names.ALL.but(_HEADS),
    keys={
        "epsilon": LAYER,
        "parallel": Key("use_parallel_residual", "use_parallel_residual", False),
    },
    own={"norm": "layer", "norms_by_head": True},
    switches={"attention": ("use_qkv_bias", False), "norms": ("qk_layernorm", False)},
    defaults={"partial_rotary_factor": 0.25},
)
Architecture(
    "starcoder2",
    {"starcoder2": ("all", None)},
    activation="gelu_tanh",
    names=names.ALL.but("mlp/gate=-,- mlp/up=,mlp.c_fc mlp/down=,mlp.c_proj"),
    keys={"epsilon": Key("norm_epsilon", LAYER.gguf, 1e-5)},
    switches=dict.fromkeys(("attention", "mlp"), ("use_bias", True)),
    own={"norm": "layer", "gated": False},
)
_NEMOTRON = Architecture(
    "nemotron",
    {"nemotron": FULL},
    activation="relu2",
    names=names.ALL.but(names.NO_GATE),
    keys={"epsilon": Key("norm_eps", LAYER.gguf, 1e-5)},
    own={"norm": "layer", "gated": False},
    one_plus=True,
    defaults={"partial_rotary_factor": 0.5},
)
_NEMOTRON.like(
    "jais2",
    {"jais2": FULL},
    keys={"epsilon": LAYER},
    one_plus=False,
    switches={"attention": ("attention_bias", True), "mlp": ("mlp_bias", True)},
    defaults={"partial_rotary_factor": None},
)
_COHERE = Architecture(
    "command-r",
    {"cohere": FULL},
    names=names.ALL.but("mlp/norm=-,-"),
    keys={"epsilon": LAYER, "logit_scale": Key("logit_scale", "logit_scale", 0.0625)},
    own={"norm": "layer", "parallel": True, "norms_by_head": True, "pairs": "neighbours"},
    switches={"norms": ("use_qk_norm", False)},
)
_COHERE.like("cohere2", {"cohere2": ("types", 4096)}, positions="windows", global_every=4)
