"""The body of `Gemm` in vectors: a workgroup is a block of rows by one panel of columns."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from iree.compiler import ir
from iree.compiler.dialects import flow

from jq.kernels.emit import Builder, Index, Indices, Tile, Tiles, Values, mlir_type
from jq.kernels.emit.dispatches import Operand, Operands, Output, dispatch, emit
from jq.kernels.gemm import amx
from jq.kernels.gemm.description import Gemm
from jq.kernels.gemm.pipelined import PipelinedPanel
from jq.kernels.gemm.product import PanelProduct, Product
from jq.kernels.gemm.source import PanelPart, Source
from jq.kernels.machine import dot, row_block
from jq.kernels.schedule.rows import Blocks, Rows, fill, row_dispatch, wanted_rows
from jq.kernels.tensor import TensorType


@dataclass(frozen=True, kw_only=True)
class MatrixRows(Source):
    """The rows of a matrix: each is one run."""

    prefix: Indices

    @staticmethod
    def of(gemm: Gemm, prefix: Indices) -> "MatrixRows":
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


# The operands with a panel's weights in memory, from a column on, in place of their parts.
Decode = Callable[[Builder, Values, Index], Values]
Panels = Callable[[Values, Index], None]


def emit_block(
    gemm: PanelProduct, b: Builder, tensors: Values, tile: Tile, row: Index, panels: Panels
) -> None:
    """A workgroup's block of rows from `row`: `panels(tensors, wanted)` computes as many as are
    wanted; zeros follow them where sequences are filled."""
    block, sequences = gemm.tiling.block, gemm.sequences
    wanted: Index = block
    if sequences:
        *tensors, counts = tensors
        wanted = wanted_rows(b, sequences, counts, row, block)
    panels(tensors, wanted)
    if sequences and sequences.fill:
        fill(b, tile, gemm.results[0], wanted, block)


def rounded(product: Product, operand: Operand) -> Operand:
    """Rows as they are multiplied: those of bf16 rounded once, for all panels."""
    value, kind = operand
    if not product.halves or kind.element == "i16":
        return operand
    isa, (*lead, columns) = product.target, kind.shape
    rows, size = math.prod(lead), isa.lanes * isa.dot.group
    flat = TensorType((rows, columns), kind.element)
    result = TensorType(flat.shape, product.stored if isa.dot.group > 1 else kind.element)

    def row(b: Builder, tensors: Values, tiles: Tiles, rows: Rows) -> None:
        def part(at: Index, valid: int) -> None:
            bits = dot.rounded(b, isa, tensors[0], [rows.at[0], at], size, valid)
            b.store(bits, tiles[0], [rows.to[0], at], valid)

        b.sweep(columns, size, part, writes=tiles)

    given = flow.tensor_reshape(mlir_type(flat), value, [], [])
    (value,) = row_dispatch([(given, flat)], [result], row, row_block(rows, columns))
    whole = TensorType(kind.shape, result.element)
    return flow.tensor_reshape(mlir_type(whole), value, [], []), whole


@emit.register
def emit_gemm(gemm: Gemm, operands: Operands) -> list[ir.Value]:
    if gemm.on_tiles:
        return amx.multiply(gemm, [amx.pack_rows(gemm, operands[0]), *operands[1:]])
    return multiply(gemm, [rounded(gemm, operands[0]), *operands[1:]])


def multiply(gemm: Gemm, operands: Operands, decode: Decode | None = None) -> list[ir.Value]:
    """A workgroup for each block of rows of each panel, whose weights it decodes, if it has to."""
    cut, depth = gemm.tiling, len(gemm.lead)
    width = min(gemm.n, cut.vectors * gemm.target.lanes)
    blocks = Blocks.of(gemm.m, cut.block, gemm.sequences)

    def offsets(b: Builder, ids: Indices) -> list[Index]:
        row = blocks.first(b, ids[0])
        column = b.at_most(b.scaled(ids[1], width), gemm.n - width)
        return [*ids[2 : 2 + depth], row, column]

    def body(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        *prefix, row, column = offsets(b, ids)

        def panel(tensors: Values, wanted: Index) -> None:
            place = PanelPart(gemm.m, row, column, 0 if decode else ids[1], prefix)
            source = MatrixRows.of(gemm, prefix)
            if decode:
                tensors, source = decode(b, tensors, column), replace(source, fetches=False)
            PipelinedPanel(source, b, tensors, tiles[0], place).emit(cut.block, wanted)

        emit_block(gemm, b, tensors, tiles[0], row, panel)

    output = Output(gemm.results[0], (*((1,) * depth), cut.block, width), offsets)
    return dispatch(operands, [output], [blocks.count, cut.panels, *gemm.lead], body)
