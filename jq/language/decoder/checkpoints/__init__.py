"""Checkpoints of Hugging Face that are quantized already: their codes become stored weights."""

from jq.language.decoder.checkpoints import (  # noqa: F401 - methods are found by being defined
    awq,
    bitsandbytes,
    compressed_tensors,
    float8,
    gptq,
    mlx,
    modelopt,
    mxfp4,
)
from jq.language.decoder.checkpoints.method import unpacked_tensors

__all__ = ["unpacked_tensors"]
