"""Decoder-only language models from their files: GGUF, or a folder of Hugging Face."""

from jq.language.decoder.config import Config
from jq.language.decoder.load import Decoder, load_decoder

__all__ = ["Config", "Decoder", "load_decoder"]
