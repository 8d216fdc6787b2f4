"""The body of `GemmRows`."""

from iree.compiler import ir

from jq.kernels.emit.bodies import Operands, emit
from jq.kernels.emit.builder import Builder, Tile, Tiles
from jq.kernels.emit.values import Index, Values, vec
from jq.kernels.epilogue.steps import ELEMENT
from jq.kernels.gemm.body import MatrixRows
from jq.kernels.gemm.description import Gemm
from jq.kernels.gemm.gemm_rows import GemmRows
from jq.kernels.gemm.pipelined import PipelinedPanel
from jq.kernels.gemm.source import PanelPart
from jq.kernels.rowwise.row_body import row_body
from jq.kernels.schedule.rows import Rows, row_dispatch

LINE = 64  # bytes of a cache line


@emit.register
def emit_gemm_rows(kernel: GemmRows, operands: Operands) -> list[ir.Value]:
    def chunk(b: Builder, tensors: Values, tiles: Tiles, rows: Rows) -> None:
        _chunk(kernel, b, tensors, tiles, rows)

    return row_dispatch(
        operands, kernel.results, chunk, kernel.block, kernel.chunk, kernel.sequences
    )


def _chunk(kernel: GemmRows, b: Builder, tensors: Values, tiles: Tiles, rows: Rows) -> None:
    gemm, own = kernel.gemm, len(kernel.gemm.operands)
    between = Tile(b.scratch([kernel.chunk, gemm.n], "f32"), (kernel.chunk, gemm.n))
    width = min(gemm.n, gemm.tiling.vectors * gemm.target.lanes)
    first, count = rows.at[0], len(rows.at)
    with b.loop(0, rows.wanted) as loop:
        row = b.at_most(loop.index, count - 1)
        _fetch(gemm, b, tensors[:own], b.offset(first, row))
    with b.loop(0, gemm.tiling.panels) as loop:
        column = b.at_most(b.scaled(loop.index, width), gemm.n - width)
        place = PanelPart(gemm.m, first, column, loop.index, to=column)
        panel = PipelinedPanel(MatrixRows.of(gemm, []), b, tensors[:own], between, place)
        panel.emit(count, rows.wanted)
    together = min(count, kernel.second.together)
    with b.loop(0, rows.wanted, together, writes=tiles) as loop:
        base = b.at_most(loop.index, count - together)
        inner = [b.offset(base, i) for i in range(together)]
        to = [b.offset(rows.to[0], row) for row in inner]
        given = [between.value, *tensors[own:]]
        row_body(kernel.second, b, given, tiles, Rows(inner, to, together))


def _fetch(gemm: Gemm, b: Builder, tensors: Values, row: Index) -> None:
    """Touches a row of what the epilogue reads by element: a register tile's are too far from
    those of the last for a processor to foresee, and each would wait for memory.
    """
    for access, source, kind in zip(gemm.accesses, tensors, gemm.operands, strict=True):
        if access == ELEMENT:
            with b.loop(0, gemm.n, LINE // kind.dtype.itemsize) as loop:
                b.touch(b.load(source, [row, loop.index], vec(1, kind.element)))
