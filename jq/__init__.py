"""jq: from a JAX model, through StableHLO, to a quantized program that IREE runs.

    compiled = jq.compile(jq.Model(fn, params, example_inputs), pipeline="int8-dynamic")

Names are imported when they are first used, so that what needs no compiler loads none.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jq.api import calibrate, compare, compile, load, plan, rewrite, trace
    from jq.compiled import CompiledModel
    from jq.errors import CompilerError, FormatError, JqError, UserError
    from jq.model import Model

_HOME = {
    "CompiledModel": "jq.compiled",
    "CompilerError": "jq.errors",
    "FormatError": "jq.errors",
    "JqError": "jq.errors",
    "Model": "jq.model",
    "UserError": "jq.errors",
    "calibrate": "jq.api",
    "compare": "jq.api",
    "compile": "jq.api",
    "load": "jq.api",
    "plan": "jq.api",
    "rewrite": "jq.api",
    "trace": "jq.api",
}
__all__ = list(_HOME)  # noqa: PLE0605


class _Package(ModuleType):
    """Finds public names where they are defined.

    A stage and the module that defines it share a name. Importing the module makes Python set it
    as an attribute of the package; that assignment is dropped, `jq.trace` stays the function.
    """

    def __getattr__(self, name: str) -> Any:
        if name == "models":
            return import_module("jq.models")
        if name not in _HOME:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOME[name]), name)

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOME})


sys.modules[__name__].__class__ = _Package
