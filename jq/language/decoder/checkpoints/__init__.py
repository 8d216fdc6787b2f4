"""Checkpoints of Hugging Face that are quantized already: their codes become stored weights. Every
file in here is imported; a method is known by being defined."""

import importlib
import pkgutil

from jq.language.decoder.checkpoints.method import unpacked_tensors

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

__all__ = ["unpacked_tensors"]
