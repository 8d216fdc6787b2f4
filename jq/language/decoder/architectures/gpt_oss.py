"""gpt-oss: heads with sinks, experts with biases and a gate of their own."""

from jq.language.decoder.architectures._base import (
    GGUF,
    HUGGING_FACE,
    Architecture,
    Key,
    gguf,
    hugging_face,
    without,
)

_STACKS = {
    "layers/{i}/mlp/experts/*/gate_up/weight": "model.layers.{i}.mlp.experts.gate_up_proj",
    "layers/{i}/mlp/experts/*/gate_up/bias": "model.layers.{i}.mlp.experts.gate_up_proj_bias",
    "layers/{i}/mlp/experts/*/down/weight": "model.layers.{i}.mlp.experts.down_proj",
    "layers/{i}/mlp/experts/*/down/bias": "model.layers.{i}.mlp.experts.down_proj_bias",
}
Architecture(
    "gpt-oss",
    ("gpt_oss",),
    activation="swiglu_oai",
    gguf=without(GGUF, "attention/norm_after")
    | gguf("attention/sinks=attn_sinks mlp/norm=post_attention_norm"),
    hugging_face=HUGGING_FACE
    | _STACKS
    | hugging_face("mlp/router=mlp.router")
    | {"layers/{i}/attention/sinks/weight": "model.layers.{i}.self_attn.sinks"},
    swapped=tuple(name for name in _STACKS if name.endswith("weight")),
    own={"sinks": True},
    keys={"gates_alternate": Key(lambda get: True, lambda get: False)},
    global_every=2,
    windows={"gpt_oss": ("types", 128)},
    truncates=False,
    defaults={"rms_norm_eps": 1e-5, "head_dim": 64},
)
