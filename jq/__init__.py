"""A quantizing compiler from JAX through StableHLO to IREE.

import jq

model = jq.Model(fn, params, example_inputs)
compiled = jq.compile(model, pipeline="int8-dynamic")
outputs = compiled(*inputs)
print(compiled.audit())
print(jq.compare(model, compiled, batches))
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jq.api import calibrate, compile, plan, rewrite
    from jq.calibrate.ranges import Ranges
    from jq.compiled import CompiledModel, load
    from jq.errors import CompilerError, JqError, UserError
    from jq.gguf import load_gguf
    from jq.job import Source, trace
    from jq.measure import compare
    from jq.model import Model
    from jq.quantize_weights import quantize_weights
    from jq.search import search
    from jq.trace.fake_quant import fake_quant, mx_fake_quant

_HOMES = {
    "CompiledModel": "jq.compiled",
    "CompilerError": "jq.errors",
    "JqError": "jq.errors",
    "Model": "jq.model",
    "Ranges": "jq.calibrate.ranges",
    "Source": "jq.job",
    "UserError": "jq.errors",
    "calibrate": "jq.api",
    "compare": "jq.measure",
    "compile": "jq.api",
    "fake_quant": "jq.trace.fake_quant",
    "load": "jq.compiled",
    "load_gguf": "jq.gguf",
    "mx_fake_quant": "jq.trace.fake_quant",
    "plan": "jq.api",
    "quantize_weights": "jq.quantize_weights",
    "rewrite": "jq.api",
    "search": "jq.search",
    "trace": "jq.job",
}
__version__ = "0.1.0"
__all__ = sorted(_HOMES)


class _Package(ModuleType):
    """Loads a name when it is asked for: `import jq` alone stays quick.

    A stage and the module that defines it share a name. Importing such a module makes Python set
    it as an attribute of the package; that is dropped, so that `jq.trace` stays the function.
    """

    def __getattr__(self, name: str) -> Any:
        if name == "models":
            return import_module("jq.models")
        if name not in _HOMES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_HOMES})


sys.modules[__name__].__class__ = _Package
