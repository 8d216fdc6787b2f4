"""Llama, and the models that share its network, or all of it but a few numbers."""

from math import sqrt

from jq.language.decoder.architectures import _base as base
from jq.language.decoder.architectures import names
from jq.language.decoder.architectures._base import FULL, KEYS, SHARES, Architecture, Key, fixed

_ORIGINAL = "original_max_position_embeddings"
_NORMED = {"norms": base.ALWAYS}
_LLAMA = Architecture(
    "llama",
    {"llama": FULL, "internlm3": FULL, "mistral": ("types", 4096), "mixtral": ("all", None)}
    | {"iquestcoder": FULL},
    keys={"pairs": fixed("halves", "neighbours")},
)
_LLAMA.like(
    "mistral3",
    {"ministral3": ("all", None), "ministral": ("types", 4096)},
    keys={
        "heat": Key("llama_4_scaling_beta", "attention.temperature_scale", 0.0),
        "heat_every": Key(_ORIGINAL, "rope.scaling.original_context_length", 16384),
    },
)
_LLAMA.like("smollm3", {"smollm3": ("still", None)}, positions="listed")
_SCALES = {
    "embedding_scale": Key("embedding_multiplier", "embedding_scale", 1.0),
    "residual_scale": Key("residual_multiplier", "residual_scale", 1.0),
    "attention_scale": Key("attention_multiplier", "attention.scale", 1.0),
    "logit_scale": Key(
        lambda get: 1 / get("logits_scaling", 1.0), lambda get: 1 / get("logit_scale", 1.0)
    ),
}
_LOCAL = ("num_local_experts",)
_GRANITE = _LLAMA.like("granite", {"granite": FULL}, keys=_SCALES, experts=_LOCAL)
_GRANITE.like(
    "hyperclovax",
    {"hyperclovax": FULL},
    names=names.ALL._replace(gguf={}).but(
        "attention/norm_after=,post_norm1 mlp/norm_after=,post_norm2"
    ),
    keys={
        "attention_scale": Key(lambda get: get("attention_multiplier", 0.0), lambda get: 0.0),
        "logit_scale": Key("logits_scaling", lambda get: 1.0, 1.0),
    },
    only={"use_post_norm": (True,)},
)
STACKS = (
    "mlp/router=,block_sparse_moe.router.layer mlp/shared/gate_up=,shared_mlp.input_linear"
    " mlp/shared/down=,shared_mlp.output_linear"
    " mlp/experts/*/gate_up/weight:,block_sparse_moe.input_linear.weight"
    " mlp/experts/*/down/weight:,block_sparse_moe.output_linear.weight"
)
_SHARED = {"granitemoe": FULL, "granitemoeshared": FULL}
_WIDTH = "shared_intermediate_size"
_GRANITE.like(
    "granitemoe",
    _SHARED,
    names=names.ALL.but(STACKS),
    keys={"shared_experts": Key(_WIDTH, lambda get: 0, 0)},
    switches={"shared": (_WIDTH, False)},
)
_NO_GATE = {"own": {"gated": False}, "names": names.ALL.but(names.NO_GATE)}
_ARCEE = _LLAMA.like("arcee", {"arcee": FULL}, activation="relu2", **_NO_GATE)
_ARCEE.like(
    "apertus",
    {"apertus": FULL},
    activation="xielu",
    keys={"pairs": fixed("halves")},
    names=names.ALL.but(
        names.NO_GATE,
        "attention/norm=,attention_layernorm mlp/norm=,feedforward_layernorm",
        *(f"mlp/curve/{n}/weight:xielu.{n},mlp.act_fn.{n}" for n in names.CURVE),
    ),
    switches=_NORMED,
)
_LLAMA.like(
    "minicpm",
    {"minicpm": FULL},
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
# Biases or norms of queries and keys are there where the file has them.
# Positions of pictures differ in three directions; those of text do not.
_QWEN2_VL = ("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text")
_QWEN2 = Architecture("qwen2", {"qwen2": ("from", 4096)}, switches={"attention": base.ALWAYS})
_QWEN2.like("qwen2vl", dict.fromkeys(_QWEN2_VL, ("from", 4096)))
_QWEN3 = Architecture("qwen3", {"qwen3": ("from", 4096)}, switches=_NORMED)
_QWEN3.like("qwen3vl", {"qwen3_vl_text": FULL})
Architecture(
    "qwen2moe",
    {"qwen2_moe": ("odd", 4096)},
    experts=("num_experts",),
    names=names.ALL.but(names.EXPERTS, names.SHARED_EXPERT),
    keys={"normal_shares": SHARES._replace(default=False)},
    switches={"attention": ("qkv_bias", True)},
    defaults=base.STEPS,
)
_QWEN3_MOE = Architecture(
    "qwen3moe",
    {"qwen3_moe": ("asked", 4096)},
    experts=(*_LOCAL, "num_experts"),
    names=names.ALL.but(names.EXPERTS),
    keys={"normal_shares": Key(SHARES.hugging_face, lambda get: get(SHARES.gguf, True), False)},
    switches=_NORMED,
    defaults=base.STEPS,
)
_QWEN3_MOE.like(
    "qwen3vlmoe",
    {"qwen3_vl_moe_text": FULL},
    names=_QWEN3_MOE.names.but(names.STACKED),
    swapped=names.STACKS,
    swapped_or_not=True,
    keys={"normal_shares": KEYS["normal_shares"]},
)
_OLMOE = Architecture(
    "olmoe",
    {"olmoe": FULL},
    names=names.ALL.but(names.EXPERTS),
    own={"norms_of_all_heads": True},
    switches=_NORMED,
    only={"clip_qkv": ()},
    keys={"normal_shares": SHARES._replace(default=False)},
)
_OF_OLMO = {"flex_olmo": FULL}
_OLMOE.like("flex_olmo", _OF_OLMO, names=names.BEHIND.but(names.EXPERTS)._replace(gguf={}), only={})
# OLMo 1: norms that take the mean away and have no weights.
_LLAMA.like(
    "olmo",
    {"olmo": FULL},
    own={"norm": "layer", "plain_norms": True},
    keys={
        "epsilon": Key(lambda get: 1e-5, base.LAYER.gguf, 1e-5),
        "clip": Key("clip_qkv", "attention.clamp_kqv", 0.0),
    },
)
# OLMo 2 and 3: norms behind each block alone, and one norm over all heads of queries or keys.
_OLMO = Architecture(
    "olmo2",
    {"olmo2": FULL, "olmo3": ("types", 4096)},
    names=names.BEHIND,
    own={"norms_of_all_heads": True},
    switches=_NORMED,
    global_every=4,
    plain_windows=True,
    of_type={"olmo3": {"local_base": 500000.0}},
)
# The same, but for a norm of each head; layers without a window do not turn.
_EXAONE: dict[str, base.Windows] = {"exaone4": ("types", 4096)}
_OLMO.like("exaone4", _EXAONE, own={}, positions="windowed", plain_windows=False)
_LLAMA.like(
    "exaone",
    {"exaone": FULL},
    names=names.ALL.but(
        *(f"attention/{n}=,attn.attention.{n[0]}_proj" for n in ("query", "key", "value")),
        "attention/output=,attn.attention.out_proj attention/norm=,ln_1 mlp/norm=,ln_2",
        names.gated("mlp", "mlp.", "c_fc_0 c_fc_1 c_proj"),
        "/embed/weight:,model.wte.weight /norm/weight:,model.ln_f.weight",
    ),
    keys={"pairs": fixed("halves")},
)
Architecture(
    "phi3",
    {"phi3": ("all", None)},
    names=names.ALL.but(names.GATE_UP),
    defaults={"partial_rotary_factor": 1.0, _ORIGINAL: 4096},
)
# Norms around each block, half of each head turned, neighbours together.
_AROUND = "attention/norm_after=,post_self_attn_layernorm mlp/norm_after=,post_mlp_layernorm"
_GLM4 = Architecture(
    "glm4",
    {"glm4": FULL},
    names=names.ALL.but(names.GATE_UP, _AROUND),
    own={"pairs": "neighbours"},
    switches={"attention": ("attention_bias", True)},
    defaults={"partial_rotary_factor": 0.5},
)
_GLM = _GLM4.like("glm", {"glm": FULL}, names=names.ALL._replace(gguf={}))
_WHOLE = {"partial_rotary_factor": None}
_GLM.like("helium", {"helium": FULL}, defaults=_WHOLE, switches=base.SWITCHES)
# Chunks in three of four layers, and in the fourth queries that grow with the position and do not
# turn; experts, in some layers, of which a token takes one, and one that all take.
Architecture(
    "llama4",
    {"llama4_text": ("turned", 8192)},
    experts=_LOCAL,
    names=names.ALL.but(
        "mlp/router=,feed_forward.router",
        names.gated("mlp", "feed_forward."),
        names.gated("mlp/shared", "feed_forward.shared_expert."),
        "mlp/experts/*/gate_up/weight:,feed_forward.experts.gate_up_proj",
        "mlp/experts/*/down/weight:,feed_forward.experts.down_proj",
    ),
    swapped=names.STACKS,
    own={"pairs": "neighbours", "router": "sigmoid", "shares_go_in": True, "chunks": True},
    keys={
        "normal_shares": fixed(False),
        "unit_heads": Key("use_qk_norm", lambda get: True, True),
        "heat": Key(
            lambda get: get("attn_scale", 0.1) * bool(get("attn_temperature_tuning", True)),
            lambda get: 0.1,
        ),
        "heat_every": Key("floor_scale", lambda get: 8192, 8192),
        "heat_first": fixed(1),
    },
    global_every=4,
    positions="listed",
    defaults={"attention.sliding_window": 8192}
    | {"routed": {"moe_layers": base.LISTED, "interleave_moe_layer_step": 1}},
)
Architecture(
    "seed_oss",
    {"seed_oss": FULL},
    names=names.ALL.but(names.NORM_BETWEEN),
    switches={"attention": ("attention_bias", True)},
    only={"attention_out_bias": (False,)},
)
# gpt-oss: heads with sinks, experts with biases and a gate of their own.
Architecture(
    "gpt-oss",
    {"gpt_oss": ("fixed", 128)},
    activation="swiglu_oai",
    activation_key="",
    names=names.ALL.but(
        names.NORM_BETWEEN,
        "attention/sinks=attn_sinks,",
        "attention/sinks/weight:,self_attn.sinks mlp/router=,mlp.router",
        names.STACKED,
        "mlp/experts/*/gate_up/bias:,mlp.experts.gate_up_proj_bias",
        "mlp/experts/*/down/bias:,mlp.experts.down_proj_bias",
    ),
    swapped=names.STACKS,
    own={"sinks": True},
    switches={"attention": ("attention_bias", True), "mlp": base.ALWAYS},
    only={"swiglu_alpha": (1.702,), "swiglu_limit": (7.0,)},
    keys={"gates_alternate": fixed(True, False)},
    global_every=2,
    truncates=False,
)
