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
Body = Callable[[Builder, Values, Tile, PanelPart, Index], None]


def over_blocks(
    gemm: PanelProduct, operands: Operands, ranges: int, groups: int, body: Body
) -> list[ir.Value]:
    """The dispatch of a product: a workgroup for each block of rows of each of `ranges` of panels
    of each group of columns (or product of a batch). `body(b, tensors, tile, place, wanted)`
    computes the rows that are wanted; zeros follow them where sequences are filled."""
    cut, sequences, lead = gemm.tiling, gemm.sequences, [1] * len(gemm.lead)
    blocks = Blocks.of(gemm.shape[0], cut.block, sequences)
    panels, size = math.ceil(cut.panels / ranges), cut.vectors * gemm.target.lanes
    width = min(gemm.span, panels * size)

    def place(b: Builder, ids: Indices) -> PanelPart:
        prefix, group = (ids[2:], 0) if lead else ((), ids[2])
        row, panel = blocks.first(b, ids[0]), b.part(ids[1], panels, cut.panels)
        column = b.at_most(b.scaled(panel, size), gemm.span - width)
        column = b.offset(b.scaled(group, gemm.span), column)
        panel = b.offset(b.scaled(group, cut.panels), panel)
        return PanelPart(gemm.shape[0], row, column, panel, prefix, group)

    def offsets(b: Builder, ids: Indices) -> list[Index]:
        part = place(b, ids)
        return [*part.prefix, part.row, part.column]

    def workgroup(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        part = place(b, ids)
        tensors, wanted = wanted_rows(b, sequences, tensors, part.row, cut.block)
        body(b, tensors, tiles[0], part, wanted)
        if sequences and sequences.fill:
            fill(b, tiles[0], gemm.results[0], wanted, cut.block)

    output = Output(gemm.results[0], (*lead, cut.block, width), offsets)
    return dispatch(operands, [output], [blocks.count, ranges, groups], workgroup)


def rounded(product: Product, operand: Operand) -> Operand:
    """Rows as they are multiplied: those of bf16 rounded once, for all panels."""
    value, kind = operand
    if not product.halves or kind.element == "i16":
        return operand
    isa, (*lead, columns) = product.target, kind.shape
    group = 2 if product.on_tiles else isa.dot.group
    rows, size = math.prod(lead), isa.lanes * group
    flat = TensorType((rows, columns), kind.element)
    result = TensorType(flat.shape, product.stored if group > 1 else kind.element)

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
    if gemm.in_place:
        rows = rounded(gemm, operands[0])
        return amx.multiply(gemm, [rows, *operands[1:]], in_place=amx.rows_in_place(gemm))
    if gemm.on_tiles:
        return amx.multiply(gemm, [amx.pack_rows(gemm, operands[0]), *operands[1:]])
    return multiply(gemm, [rounded(gemm, operands[0]), *operands[1:]])


def multiply(gemm: Gemm, operands: Operands, decode: Decode | None = None) -> list[ir.Value]:
    """The dispatch on vectors; a workgroup decodes the weights of its panel, if it has to."""

    def body(b: Builder, tensors: Values, tile: Tile, place: PanelPart, wanted: Index) -> None:
        source = MatrixRows.of(gemm, place.prefix)
        if decode:
            tensors, source = decode(b, tensors, place.column), replace(source, fetches=False)
            place = replace(place, panel=0)
        PipelinedPanel(source, b, tensors, tile, place).emit(gemm.tiling.block, wanted)

    return over_blocks(gemm, operands, gemm.tiling.panels, gemm.batch, body)
