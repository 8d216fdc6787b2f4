# The public names and the modules that have them: for type checkers, and for `jq`, which loads each
# when it is asked for.

import types

from . import formats as formats
from . import models as models
from .api.compiling import compare as compare
from .api.compiling import compile as compile
from .api.steps import calibrate as calibrate
from .api.steps import explain as explain
from .api.steps import plan as plan
from .api.steps import rewrite as rewrite
from .api.training import quantized as quantized
from .base.errors import CompilerError as CompilerError
from .base.errors import JqError as JqError
from .base.errors import UserError as UserError
from .device.checking import check as check
from .device.embedding import embed as embed
from .device.estimating import estimate as estimate
from .device.exporting import export as export
from .device.golden import vectors as vectors
from .driver.compiled import CompiledModel as CompiledModel
from .driver.loading import load as load
from .driver.weights.quantize import quantize_weights as quantize_weights
from .frontends.frameworks import from_equinox as from_equinox
from .frontends.frameworks import from_haiku as from_haiku
from .frontends.frameworks import from_keras as from_keras
from .frontends.frameworks import from_linen as from_linen
from .frontends.frameworks import from_nnx as from_nnx
from .frontends.gguf import load_gguf as load_gguf
from .frontends.model import Model as Model
from .frontends.onnx import load_onnx as load_onnx
from .frontends.source import Source as Source
from .frontends.source import trace as trace
from .frontends.tracing.fake_quant import fake_quant as fake_quant
from .frontends.tracing.fake_quant import mx_fake_quant as mx_fake_quant
from .ir.quantized.elements import encoding as encoding
from .language.model import LanguageModel as LanguageModel
from .mixed_precision.run import search as search
from .planning.calibration.ranges import Ranges as Ranges
from .reporting.measuring.measure import bench as bench
from .reporting.report import report as report

__version__: str
gguf: types.ModuleType
page: types.ModuleType
