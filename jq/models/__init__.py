"""Built-in models: `jq.models.NAME` is a `jq.Model`, built when it is first asked for.

A model is a file in the folder `zoo` which defines `build(**sizes) -> Model`; the first line of its
docstring is its description. `jq.models.build(NAME, **sizes)` gives it in other sizes. Files
here whose name begins with an underscore are what several models share."""

import ast
import importlib
from pathlib import Path
from typing import Any

from jq.base.errors import UserError, known
from jq.frontends.model import Model

_ZOO = Path(__file__).parent / "zoo"
_built: dict[str, Model] = {}


def names() -> dict[str, str]:
    """Name -> one-line description of every built-in model; imports and builds none."""
    found = {}
    for path in sorted(_ZOO.glob("[!_]*.py")):
        doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        found[path.stem] = doc.partition("\n")[0].rstrip(".")
    return found


def build(name: str, **sizes: Any) -> Model:
    """The built-in model `name` in the sizes that its builder takes; without any, its full size."""
    if name not in names():
        raise UserError(f"no built-in model {name!r}", hint=known(name, names()))
    model: Model = importlib.import_module(f"{__name__}.zoo.{name}").build(**sizes)
    return model


def get(name: str) -> Model:
    """The built-in model `name` at its full size; built once in a process."""
    if name not in _built:
        _built[name] = build(name)
    return _built[name]


def __getattr__(name: str) -> Any:
    if name.startswith("_") or not (_ZOO / f"{name}.py").is_file():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return get(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *names()})
