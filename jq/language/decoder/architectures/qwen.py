"""Qwen: biases or norms of queries and keys are there where the file has them."""

from jq.language.decoder.architectures._base import (
    EXPERTS,
    HUGGING_FACE,
    SHARED_EXPERT,
    Architecture,
)

Architecture("qwen2", ("qwen2",), windows={"qwen2": ("from", 4096)})
Architecture(
    "qwen3",
    ("qwen3",),
    windows={"qwen3": ("from", 4096)},
    defaults={"rms_norm_eps": 1e-6, "head_dim": 128},
)
Architecture(
    "qwen2moe",
    ("qwen2_moe",),
    hugging_face=HUGGING_FACE | EXPERTS | SHARED_EXPERT,
    normal_shares=False,
    gguf_normal_shares=False,
    windows={"qwen2_moe": ("asked", 4096)},
)
Architecture(
    "qwen3moe",
    ("qwen3_moe",),
    hugging_face=HUGGING_FACE | EXPERTS,
    normal_shares=False,
    windows={"qwen3_moe": ("asked", 4096)},
)
