"""MLIR, as the rest of the package sees it: the only place that imports its bindings."""

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo

from jq.ir.build import constant_of
from jq.ir.mlir_context import at, context, editing, parse_module, run_passes
from jq.ir.program import Program
from jq.ir.types import TensorSpec, dtype_name, dtype_of, shape_of, tensor_type, to_dtype
from jq.ir.values import Op, enclosing, walk

__all__ = [
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
    "func",
    "ir",
    "parse_module",
    "run_passes",
    "shape_of",
    "stablehlo",
    "tensor_type",
    "to_dtype",
    "walk",
]
