"""GPT 2 and models after it, whose norms take the mean away and whose feed-forward layers have no
gate: with learned positions, or with rotary ones and blocks side by side."""

from jq.language.decoder.architectures import _base as base
from jq.language.decoder.architectures import names
from jq.language.decoder.architectures._base import FULL, LAYER, Architecture, Key, fixed

_LAST = "/norm/weight:,model.{0}.weight /norm/bias:,model.{0}.bias /embed/weight:,model.{1}.weight"
_PLAIN = {"norm": "layer", "gated": False}
_GPT2 = Architecture(
    "gpt2",
    {"gpt2": FULL},
    activation="gelu_tanh",
    activation_key="activation_function",
    names=names.ALL.but(
        "attention/qkv=,attn.c_attn attention/output=,attn.c_proj attention/norm=,ln_1",
        "mlp/norm=,ln_2 mlp/up=,mlp.c_fc mlp/down=,mlp.c_proj mlp/gate=-,-",
        "/positions/weight:position_embd.weight,model.wpe.weight",
        _LAST.format("ln_f", "wte"),
    ),
    own=_PLAIN,
    keys={
        "epsilon": Key("layer_norm_epsilon", LAYER.gguf, 1e-5),
        "inner": Key(lambda get: 4 * get("hidden_size"), lambda get: None),  # where none is said
    },
    positions="none",
    switches=dict.fromkeys(("attention", "mlp"), base.ALWAYS),
    only={"scale_attn_weights": (True,), "scale_attn_by_inverse_layer_idx": (False,)},
    swapped=("attention/qkv", "attention/output", "mlp/up", "mlp/down"),
)
_GPT2.like(
    "starcoder",
    {"gpt_bigcode": FULL},
    only={"scale_attn_weights": (True,), "multi_query": (True,)},
    swapped=(),
    defaults={"num_key_value_heads": 1},
)
_GPT2.like(
    "opt",
    {"opt": FULL},
    activation="relu",
    names=names.ALL.but(
        "attention/norm=,self_attn_layer_norm attention/output=,self_attn.out_proj mlp/gate=-,-",
        "mlp/norm=,final_layer_norm mlp/up=,fc1 mlp/down=,fc2",
        "/positions/weight:,model.embed_positions.weight",
        _LAST.format("final_layer_norm", "embed_tokens"),
    )._replace(gguf={}),
    own=_PLAIN | {"unused_positions": 2},
    switches=dict.fromkeys(("attention", "mlp"), ("enable_bias", True)),
    only={"do_layer_norm_before": (True,), "_remove_final_layer_norm": (False,)}
    | {"layer_norm_elementwise_affine": (True,)},
    swapped=(),
)
_GPT2.like(
    "gpt_neo",
    {"gpt_neo": ("types", 256)},
    names=_GPT2.names._replace(gguf={}).but(
        *(f"attention/{n}=,attn.attention.{n[0]}_proj" for n in ("query", "key", "value")),
        "attention/qkv=-,- attention/output=,attn.attention.out_proj",
    ),
    keys={"attention_scale": fixed(1.0)},
    mixers={"global": ("attention",), "local": ("attention",)},
    defaults={"layer_types": []},
    only={},
    swapped=(),
)
_GPT2.like(
    "gptj",
    {"gptj": FULL},
    names=names.ALL._replace(gguf={}).but(
        *(f"attention/{n}=,attn.{n[0]}_proj" for n in ("query", "key", "value")),
        "attention/output=,attn.out_proj attention/norm=,ln_1 mlp/norm=-,- mlp/gate=-,-",
        "mlp/up=,mlp.fc_in mlp/down=,mlp.fc_out",
        _LAST.format("ln_f", "wte"),
    ),
    own=_PLAIN | {"parallel": True, "pairs": "neighbours"},
    positions="all",
    switches={"attention": base.NEVER, "head": base.ALWAYS},
    only={},
    swapped=(),
    defaults={"rotary_dim": 64},
)
_SIDE = Key("use_parallel_residual", "use_parallel_residual", True)
_NEOX = Architecture(
    "gptneox",
    {"gpt_neox": FULL},
    activation="gelu",
    names=names.ALL.but(
        "attention/qkv=,attention.query_key_value attention/output=,attention.dense mlp/gate=-,-",
        "mlp/up=,mlp.dense_h_to_4h mlp/down=,mlp.dense_4h_to_h /head/weight:,embed_out.weight",
        _LAST.format("final_layer_norm", "embed_in"),
    ),
    own=_PLAIN | {"two_norms": True},
    switches={"attention": ("attention_bias", True), "mlp": base.ALWAYS},
    keys={"epsilon": LAYER, "parallel": _SIDE, "heads_together": fixed(True, False)},
    defaults={"partial_rotary_factor": 0.25},
)
# Falcon as its 7B: queries of all heads, and one head of keys and values.
_NEOX.like(
    "falcon",
    {"falcon": FULL},
    activation_key="activation",
    names=_NEOX.names.but(
        "attention/qkv=,self_attention.query_key_value attention/output=,self_attention.dense",
        "/head/weight:,lm_head.weight mlp/norm=-,-",
        _LAST.format("ln_f", "word_embeddings"),
    ),
    own=_PLAIN,
    switches=dict.fromkeys(("attention", "mlp"), ("bias", False)),
    only={"alibi": (False,), "new_decoder_architecture": (False,)}
    | dict.fromkeys(("multi_query", "parallel_attn"), (True,)),
    keys={**_GPT2.keys, "heads_together": fixed(False)},
    defaults={"partial_rotary_factor": None, "num_key_value_heads": 1},
)
