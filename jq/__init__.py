"""A quantizing compiler from JAX through StableHLO to IREE.

    import jq

    model = jq.Model(fn, params, example_inputs)
    compiled = jq.compile(model, pipeline="int8-dynamic")
    outputs = compiled(*inputs)
    print(compiled.audit())
    print(jq.compare(model, compiled, batches))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jq.api import (
        CompiledModel,
        Source,
        calibrate,
        compare,
        compile,
        load,
        plan,
        rewrite,
        trace,
    )
    from jq.calibrate.ranges import Ranges
    from jq.errors import CompilerError, JqError, UserError
    from jq.gguf import load_gguf
    from jq.model import Model

_HOMES = {
    "CompiledModel": "jq.compiled",
    "CompilerError": "jq.errors",
    "JqError": "jq.errors",
    "Model": "jq.model",
    "Ranges": "jq.calibrate.ranges",
    "Source": "jq.api",
    "UserError": "jq.errors",
    "calibrate": "jq.api",
    "compare": "jq.api",
    "compile": "jq.api",
    "load": "jq.api",
    "load_gguf": "jq.gguf",
    "plan": "jq.api",
    "rewrite": "jq.api",
    "trace": "jq.api",
}
__version__ = "0.1.0"
__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Loads what is asked for: `import jq` alone stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'jq' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    # All at once: loading a module named like one of them has put the module in its place.
    globals().update({n: getattr(home, n) for n, where in _HOMES.items() if where == home.__name__})
    return globals()[name]
