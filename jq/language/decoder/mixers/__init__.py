"""Mixers of a sequence's tokens. Every file in here is imported; one is known by being made."""

import importlib
import pkgutil

from jq.language.decoder.mixers._base import Mixer

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

__all__ = ["Mixer"]
