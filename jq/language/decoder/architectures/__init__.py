"""The architectures that are known. Every file in here is imported; one is known by being made."""

import importlib
import pkgutil

from jq.language.decoder.architectures._base import GGUF, HUGGING_FACE, Architecture

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

__all__ = ["GGUF", "HUGGING_FACE", "Architecture"]
