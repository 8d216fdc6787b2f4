"""Bodies of descriptions: functions registered for their types.

@emit.register
def emit_normalize(kernel: Normalize, operands: Operands) -> list[ir.Value]:
    ...  # dispatches at the current insertion point
"""

from collections.abc import Sequence
from functools import singledispatch

from iree.compiler import ir

from jq.base.errors import InternalError
from jq.kernels.kernel import Kernel
from jq.kernels.tensor import TensorType

Operand = tuple[ir.Value, TensorType]
Operands = Sequence[Operand]


@singledispatch
def emit(kernel: Kernel, operands: Operands) -> list[ir.Value]:
    """Emits a kernel's dispatches at the current insertion point; its results."""
    raise InternalError(f"kernels of the family {kernel.family!r} have no body")
