"""The operators, by kind. Every file in here is imported; an operator is there by being defined."""

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
