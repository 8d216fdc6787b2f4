"""The operators, by kind. Every file in here is imported; an operator is there by being defined."""

from __future__ import annotations

import importlib
from pathlib import Path

for _path in sorted(Path(__file__).parent.glob("[!_]*.py")):
    importlib.import_module(f"{__name__}.{_path.stem}")
