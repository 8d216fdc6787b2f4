"""A quantizing compiler from JAX through StableHLO to IREE.

import jq

model = jq.Model(fn, params, example_inputs) compiled = jq.compile(model, pipeline="int8-dynamic")
outputs = compiled(*inputs) print(compiled.audit()) print(jq.compare(model, compiled, batches))"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `as` says to type checkers that the name is public
    from jq.api import (
        calibrate as calibrate,
        compare as compare,
        compile as compile,
        explain as explain,
        plan as plan,
        rewrite as rewrite,
    )
    from jq.api.training import quantized as quantized
    from jq.base.errors import (
        CompilerError as CompilerError,
        JqError as JqError,
        UserError as UserError,
    )
    from jq.device.checking import check as check
    from jq.device.embedding import embed as embed
    from jq.device.estimating import estimate as estimate
    from jq.device.exporting import export as export
    from jq.device.golden import vectors as vectors
    from jq.driver.compiled import CompiledModel as CompiledModel
    from jq.driver.loading import load as load
    from jq.driver.weights.quantize import quantize_weights as quantize_weights
    from jq.frontends.frameworks import (
        from_equinox as from_equinox,
        from_haiku as from_haiku,
        from_keras as from_keras,
        from_linen as from_linen,
        from_nnx as from_nnx,
    )
    from jq.frontends.gguf import load_gguf as load_gguf
    from jq.frontends.model import Model as Model
    from jq.frontends.onnx import load_onnx as load_onnx
    from jq.frontends.source import Source as Source, trace as trace
    from jq.frontends.tracing.fake_quant import (
        fake_quant as fake_quant,
        mx_fake_quant as mx_fake_quant,
    )
    from jq.ir.quantized.elements import encoding as encoding
    from jq.language.model import LanguageModel as LanguageModel
    from jq.mixed_precision.run import search as search
    from jq.planning.calibration.ranges import Ranges as Ranges
    from jq.reporting.measuring.measure import bench as bench
    from jq.reporting.report import report as report

# Public names by the module that has them.
_PUBLIC = {
    "jq.api": "calibrate compare compile explain plan rewrite",
    "jq.api.training": "quantized",
    "jq.base.errors": "CompilerError JqError UserError",
    "jq.device.checking": "check",
    "jq.device.embedding": "embed",
    "jq.device.estimating": "estimate",
    "jq.device.exporting": "export",
    "jq.device.golden": "vectors",
    "jq.driver.compiled": "CompiledModel",
    "jq.driver.loading": "load",
    "jq.driver.weights.quantize": "quantize_weights",
    "jq.frontends.frameworks": "from_equinox from_haiku from_keras from_linen from_nnx",
    "jq.frontends.gguf": "load_gguf",
    "jq.frontends.model": "Model",
    "jq.frontends.onnx": "load_onnx",
    "jq.frontends.source": "Source trace",
    "jq.frontends.tracing.fake_quant": "fake_quant mx_fake_quant",
    "jq.ir.quantized.elements": "encoding",
    "jq.language.model": "LanguageModel",
    "jq.mixed_precision.run": "search",
    "jq.planning.calibration.ranges": "Ranges",
    "jq.reporting.measuring.measure": "bench",
    "jq.reporting.report": "report",
}
_HOMES = {name: home for home, names in _PUBLIC.items() for name in names.split()}
__version__ = "0.1.0"
__all__ = sorted(_HOMES)


# Packages by the names that they have here.
_PACKAGES = {
    "formats": "jq.formats",
    "gguf": "jq.frontends.gguf",
    "models": "jq.models",
    "page": "jq.reporting.report",
}


def __getattr__(name: str) -> Any:
    """Loads a name when it is asked for: `import jq` alone stays quick."""
    if name in _PACKAGES:
        return import_module(_PACKAGES[name])
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_PACKAGES})
