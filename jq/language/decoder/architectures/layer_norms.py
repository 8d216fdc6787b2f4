"""Models that take the mean away before they norm: Phi 2, StableLM, StarCoder 2."""

from jq.language.decoder.architectures._base import (
    GGUF,
    HUGGING_FACE,
    LAYER,
    Architecture,
    Key,
    hugging_face,
    without,
)

_FINAL = {f"norm/{part}": f"model.final_layernorm.{part}" for part in ("weight", "bias")}
Architecture(
    "phi2",
    ("phi",),
    activation="gelu_tanh",
    gguf=without(GGUF, "mlp/norm", "mlp/gate"),
    hugging_face=without(HUGGING_FACE, "mlp/norm", "mlp/gate")
    | _FINAL
    | hugging_face("attention/output=self_attn.dense mlp/up=mlp.fc1 mlp/down=mlp.fc2"),
    norm="layer",
    epsilon=LAYER,
    parallel=True,
    own={"gated": False},
    defaults={"layer_norm_eps": 1e-5, "partial_rotary_factor": 0.5},
)
Architecture(
    "stablelm",
    ("stablelm",),
    norm="layer",
    epsilon=LAYER,
    keys={"parallel": Key("use_parallel_residual", "use_parallel_residual", False)},
    defaults={"layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25},
)
Architecture(
    "starcoder2",
    ("starcoder2",),
    activation="gelu_tanh",
    gguf=without(GGUF, "mlp/gate"),
    hugging_face=without(HUGGING_FACE, "mlp/gate")
    | hugging_face("mlp/up=mlp.c_fc mlp/down=mlp.c_proj"),
    norm="layer",
    epsilon=Key("norm_epsilon", "attention.layer_norm_epsilon", 1e-5),
    own={"gated": False},
    windows={"starcoder2": ("all", None)},
)
