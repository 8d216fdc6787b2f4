"""The body of `Gemm` in vectors: a workgroup is a block of rows by one panel of columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iree.compiler import ir

from jq.kernels.emit.bodies import Operands, emit
from jq.kernels.emit.builder import Builder, Tile, Tiles
from jq.kernels.emit.dispatch import Output, dispatch
from jq.kernels.emit.values import Index, Indices, Values
from jq.kernels.gemm import amx
from jq.kernels.gemm.description import Gemm
from jq.kernels.gemm.pipelined import PipelinedPanel
from jq.kernels.gemm.product import PanelProduct
from jq.kernels.gemm.source import PanelPart, Source
from jq.kernels.schedule.padded_output import Part, framed
from jq.kernels.schedule.ragged_rows import Blocks, wanted_rows
from jq.kernels.schedule.rows import fill


@dataclass(frozen=True, kw_only=True)
class MatrixRows(Source):
    """The rows of a matrix: each is one run."""

    prefix: Indices

    @staticmethod
    def of(gemm: Gemm, prefix: Indices) -> MatrixRows:
        whole, tail = divmod(gemm.k, gemm.target.dot.group)
        return MatrixRows(
            product=gemm,
            prefix=prefix,
            whole=whole,
            tail=tail,
            flip=gemm.unsigned and not gemm.target.dot.lhs_unsigned,
            streams=gemm.streams,
            fetches=gemm.batch == 1 and gemm.streams == 1,
            in_pieces=True,
        )

    @property
    def length(self) -> int:
        return self.whole * self.product.target.dot.group + self.tail

    def corner(self, b: Builder, row: Index) -> list[Index]:
        return [*self.prefix, row, 0]


Panels = Callable[[Values, Index, Part | None], None]


def emit_block(
    gemm: PanelProduct, b: Builder, tensors: Values, tile: Tile, row: Index, panels: Panels
) -> None:
    """A workgroup's block of rows from `row`: `panels(tensors, wanted, part)` computes as many as
    are wanted, inside what stands around images; zeros follow them where sequences are filled.
    """
    block, sequences = gemm.tiling.block, gemm.sequences
    wanted: Index = block
    if sequences:
        *tensors, counts = tensors
        wanted = wanted_rows(b, sequences, counts, row, block)
    part = Part.of(b, gemm.frame, row, block, gemm.shape[0]) if gemm.frame else None
    if part:
        part.fill(b, tile, gemm.results[0])
    panels(tensors, wanted, part)
    if sequences and sequences.fill:
        fill(b, tile, gemm.results[0], wanted, block)


@emit.register
def emit_gemm(gemm: Gemm, operands: Operands) -> list[ir.Value]:
    if gemm.on_tiles:
        return amx.multiply(gemm, [amx.pack_rows(gemm, operands[0]), *operands[1:]])
    cut, depth = gemm.tiling, len(gemm.lead)
    width = min(gemm.n, cut.vectors * gemm.target.lanes)
    blocks = Blocks.of(gemm.m, cut.block, gemm.sequences)

    def offsets(b: Builder, ids: Indices) -> list[Index]:
        row = blocks.first(b, ids[0])
        column = b.at_most(b.scaled(ids[1], width), gemm.n - width)
        return [*ids[2 : 2 + depth], row, column]

    def body(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        *prefix, row, column = offsets(b, ids)

        def panel(tensors: Values, wanted: Index, part: Part | None) -> None:
            place = PanelPart(gemm.m, row, column, ids[1], prefix, part=part)
            source = MatrixRows.of(gemm, prefix)
            PipelinedPanel(source, b, tensors, tiles[0], place).emit(cut.block, wanted)

        emit_block(gemm, b, tensors, tiles[0], row, panel)

    output = Output(gemm.results[0], (*((1,) * depth), cut.block, width), offsets)
    output = framed(gemm.frame, output, gemm.m)
    return dispatch(operands, [output], [blocks.count, cut.panels, *gemm.lead], body)
