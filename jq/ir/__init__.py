"""MLIR, as the rest of the package sees it: the only place that imports its bindings."""

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo

from jq.ir.arrays import OPS
from jq.ir.build import constant_of
from jq.ir.constants import evaluate
from jq.ir.mlir_context import at, context, editing, parse_module, run_passes
from jq.ir.program import Program
from jq.ir.types import TensorSpec, dtype_name, dtype_of, shape_of, tensor_type, to_dtype
from jq.ir.values import Op, enclosing, kind_of, maker, walk

__all__ = [
    "OPS",
    "Op",
    "Program",
    "TensorSpec",
    "at",
    "constant_of",
    "context",
    "dtype_name",
    "dtype_of",
    "editing",
    "enclosing",
    "evaluate",
    "func",
    "ir",
    "kind_of",
    "maker",
    "parse_module",
    "run_passes",
    "shape_of",
    "stablehlo",
    "tensor_type",
    "to_dtype",
    "walk",
]
