"""A quantizing compiler from JAX through StableHLO to IREE.

    import jq

    model = jq.Model(fn, params, example_inputs)
    compiled = jq.compile(model, pipeline="int8-dynamic")
    outputs = compiled(*inputs)
    print(compiled.audit())
    print(jq.compare(model, compiled, batches))

The public names are in `__init__.pyi`; each is loaded when it is asked for, so that `import jq`
alone stays quick."""

from importlib import import_module
from typing import Any

import lazy_loader

__version__ = "0.1.0"
_OTHERS = {"gguf": "jq.frontends.gguf", "page": "jq.reporting.report"}  # packages, by short names
_loaded, _, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = [name for name in _names if name not in ("formats", "models")]


def __getattr__(name: str) -> Any:
    return import_module(_OTHERS[name]) if name in _OTHERS else _loaded(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_names, *_OTHERS})
