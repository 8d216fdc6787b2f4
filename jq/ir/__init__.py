"""MLIR, as the rest of the package sees it: the only place that imports its bindings."""

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo

from jq.ir.arrays import OPS
from jq.ir.build import NAME, constant_of, integers, replace, string_attr
from jq.ir.constants import dense_array, evaluate
from jq.ir.mlir_context import at, context, editing, parse_module, run_passes
from jq.ir.program import Program
from jq.ir.types import TensorSpec, dtype_name, dtype_of, shape_of, tensor_type, to_dtype
from jq.ir.values import Op, enclosing, is_read, kind_of, last_of, maker, only_user, users, walk
