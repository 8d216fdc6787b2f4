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
    from jq.api import calibrate, compare, compile, explain, plan, rewrite
    from jq.calibration.ranges import Ranges
    from jq.compiled import CompiledModel, load
    from jq.device.checking import check
    from jq.device.embedding import embed
    from jq.device.estimating import estimate
    from jq.device.golden import vectors
    from jq.errors import CompilerError, JqError, UserError
    from jq.frameworks import from_equinox, from_haiku, from_keras, from_linen, from_nnx
    from jq.gguf import load_gguf
    from jq.language import LanguageModel
    from jq.measuring.measure import bench
    from jq.mixed_precision import search
    from jq.model import Model
    from jq.onnx import load_onnx
    from jq.page import report
    from jq.quantized.encoding import encoding
    from jq.source import Source, trace
    from jq.tracing.fake_quant import fake_quant, mx_fake_quant
    from jq.weights.quantize import quantize_weights

_FRAMEWORKS = ("from_equinox", "from_haiku", "from_keras", "from_linen", "from_nnx")
_HOMES = {
    "CompiledModel": "jq.compiled",
    "CompilerError": "jq.errors",
    "JqError": "jq.errors",
    "LanguageModel": "jq.language",
    "Model": "jq.model",
    "Ranges": "jq.calibration.ranges",
    "Source": "jq.source",
    "UserError": "jq.errors",
    "bench": "jq.measuring.measure",
    "calibrate": "jq.api",
    "check": "jq.device.checking",
    "compare": "jq.api",
    "compile": "jq.api",
    "encoding": "jq.quantized.encoding",
    "estimate": "jq.device.estimating",
    "embed": "jq.device.embedding",
    "explain": "jq.api",
    "fake_quant": "jq.tracing.fake_quant",
    **dict.fromkeys(_FRAMEWORKS, "jq.frameworks"),
    "load": "jq.compiled",
    "load_gguf": "jq.gguf",
    "load_onnx": "jq.onnx",
    "mx_fake_quant": "jq.tracing.fake_quant",
    "plan": "jq.api",
    "quantize_weights": "jq.weights.quantize",
    "report": "jq.page",
    "rewrite": "jq.api",
    "search": "jq.mixed_precision",
    "trace": "jq.source",
    "vectors": "jq.device.golden",
}
__version__ = "0.1.0"
__all__ = sorted(_HOMES)


_PACKAGES = ("formats", "gguf", "models", "page")


def __getattr__(name: str) -> Any:
    """Loads a name when it is asked for: `import jq` alone stays quick."""
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PACKAGES})
