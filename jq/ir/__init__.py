"""MLIR, as the rest of the package sees it: the only place that imports its bindings."""

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo

from jq.ir.arrays import OPS
from jq.ir.build import (
    NAME,
    barrier,
    constant_of,
    copied,
    create,
    direction_of,
    i64_array,
    integers,
    like,
    replace,
    string_attr,
)
from jq.ir.constants import dense_array, evaluate, known_parts, one_step
from jq.ir.mlir_context import at, bytecode_of, context, editing, parse_module, run_passes
from jq.ir.program import Program
from jq.ir.types import (
    TensorSpec,
    dtype_name,
    dtype_of,
    number_kind,
    shape_of,
    tensor_type,
    to_dtype,
)
from jq.ir.values import (
    CONTROL,
    Op,
    enclosing,
    is_read,
    kind_of,
    last_of,
    maker,
    only_user,
    reached,
    short_kind,
    users,
    walk,
)
