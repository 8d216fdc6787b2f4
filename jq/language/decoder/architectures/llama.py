"""Llama, and the models that share its network: Mistral, Mixtral."""

from jq.language.decoder.architectures._base import Architecture

Architecture(
    "llama",
    ("llama", "mistral", "mixtral"),
    gguf_pairs="neighbours",
    windows={"mistral": ("types", 4096), "mixtral": ("all", None)},
)
