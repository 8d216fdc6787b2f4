"""Built-in models: `jq.models.NAME` is a `jq.Model`, built when it is first asked for.

A model is a file in this folder whose name has no leading underscore and which defines
`build(**sizes) -> Model`; the first line of its docstring is its description.
`from jq.models.NAME import build` gives the builder, for other sizes.
"""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from jq.errors import UserError
from jq.model import Model

_FOLDER = Path(__file__).parent
_built: dict[str, Model] = {}


def names() -> dict[str, str]:
    """Name -> one-line description of every built-in model; imports and builds none."""
    found = {}
    for path in sorted(_FOLDER.glob("[!_]*.py")):
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        found[path.stem] = doc.partition("\n")[0].rstrip(".")
    return found


def get(name: str) -> Model:
    """The built-in model `name` at its full size; built once in a process."""
    if name not in _built:
        if name not in names():
            raise UserError(f"no built-in model {name!r}", hint=f"known: {', '.join(names())}")
        _built[name] = importlib.import_module(f"{__name__}.{name}").build()
    return _built[name]


class _Models(ModuleType):
    """Makes the models attributes of this package, under the names of their files.

    Importing a file makes Python set it as an attribute of the package, which would hide
    the model of the same name; that assignment is dropped (`sys.modules` still has the file).
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not (_FOLDER / f"{name}.py").is_file():
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return get(name)

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and value.__name__ == f"{self.__name__}.{name}"):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *names()})


sys.modules[__name__].__class__ = _Models
