"""Qwen: biases or norms of queries and keys are there where the file has them."""

from jq.language.decoder.architectures._base import HUGGING_FACE, Architecture

_EXPERTS = {
    f"layers/{{i}}/mlp/{ours}/{part}": f"model.layers.{{i}}.mlp.{theirs}.{part}"
    for ours, theirs in (
        ("router", "gate"),
        ("experts/{e}/gate", "experts.{e}.gate_proj"),
        ("experts/{e}/up", "experts.{e}.up_proj"),
        ("experts/{e}/down", "experts.{e}.down_proj"),
    )
    for part in ("weight", "bias", "order")
}

Architecture("qwen2", ("qwen2",), windows={"qwen2": ("from", 4096)})
Architecture(
    "qwen3",
    ("qwen3",),
    windows={"qwen3": ("from", 4096)},
    defaults={"rms_norm_eps": 1e-6, "head_dim": 128},
)
Architecture(
    "qwen3moe",
    ("qwen3_moe",),
    hugging_face=HUGGING_FACE | _EXPERTS,
    normal_shares=False,
    windows={"qwen3_moe": ("asked", 4096)},
)
