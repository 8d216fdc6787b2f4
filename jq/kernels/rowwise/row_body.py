"""Work on some rows of a matrix, by itself or after a product that made them."""

from functools import singledispatch

from iree.compiler import ir

from jq.base.errors import InternalError
from jq.kernels.emit.bodies import Operands
from jq.kernels.emit.builder import Builder, Tiles
from jq.kernels.emit.values import Values
from jq.kernels.machine.workgroups import row_block
from jq.kernels.rowwise.quantize_rows import RowKernel
from jq.kernels.schedule.rows import Rows, row_dispatch


@singledispatch
def row_body(kernel: object, b: Builder, tensors: Values, tiles: Tiles, rows: Rows) -> None:
    """Some rows of the first tensor, to the tiles."""
    raise InternalError(f"{kernel} has no rows")


def over_rows(kernel: RowKernel, operands: Operands, together: int = 1) -> list[ir.Value]:
    """A dispatch over all rows of a matrix."""

    def body(b: Builder, tensors: Values, tiles: Tiles, rows: Rows) -> None:
        row_body(kernel, b, tensors, tiles, rows)

    block = row_block(kernel.m, kernel.k)
    together = min(block, together)
    return row_dispatch(operands, kernel.results, body, block, together, kernel.sequences)
