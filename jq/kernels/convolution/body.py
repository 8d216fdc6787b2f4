"""The bodies of convolutions: a workgroup is a block of pixels by panels of a group's filters."""

from dataclasses import dataclass
from functools import partial

from iree.compiler import ir
from iree.compiler.dialects import arith

from jq.kernels.convolution.description import Convolution
from jq.kernels.convolution.windowed import PairConvolution, WindowPanels
from jq.kernels.emit import Builder, Index, Indices, Tile, Values, high
from jq.kernels.emit.dispatches import Operands, emit
from jq.kernels.emit.values import Position
from jq.kernels.gemm import amx, pair_body
from jq.kernels.gemm.body import over_blocks, rounded
from jq.kernels.gemm.pipelined import PipelinedPanel
from jq.kernels.gemm.source import PanelPart, Source


@dataclass(frozen=True, kw_only=True)
class Windows(Source):
    """The windows of pixels: a run is what lies side by side."""

    product: WindowPanels
    group: Index

    @staticmethod
    def of(conv: Convolution, group: Index = 0) -> "Windows":
        size = conv.target.dot.group
        whole, tail = (conv.run_groups, 0) if conv.room else divmod(conv.run, size)
        return Windows(
            product=conv,
            group=group,
            runs=conv.runs,
            run_steps=conv.run_groups,
            whole=whole,
            tail=tail,
            stored=conv.panel * size,
            flip=conv.unsigned != conv.target.dot.lhs_unsigned,
        )

    @property
    def length(self) -> int:
        return self.product.run

    def corner(self, b: Builder, row: Index) -> list[Index]:
        """Start of an output pixel's window: sample, row, column * C."""
        conv, (high, wide) = self.product, self.product.output
        line = b.modulo(b.divided(row, wide), high)
        column = b.modulo(row, wide)
        return [
            self.sample(b, row),
            b.scaled(line, conv.strides[0]),
            b.scaled(column, conv.strides[1] * conv.channels),
        ]

    def tap(self, b: Builder, corner: Indices, h: Index, w: Index) -> list[Index]:
        conv, (sample, row, column) = self.product, corner
        down = b.offset(row, b.scaled(h, conv.dilations[0]))
        across = b.offset(column, b.scaled(w, conv.dilations[1] * conv.channels))
        channel = b.scaled(self.group, conv.channels // conv.groups)
        return [sample, down, b.offset(across, channel)]

    def sample(self, b: Builder, row: Index) -> Index:
        """Operands by row have one element a sample."""
        return b.divided(row, self.product.output[0] * self.product.output[1])


@emit.register
def emit_convolution(conv: Convolution, operands: Operands) -> list[ir.Value]:
    if conv.on_tiles:
        return _on_tiles(conv, operands)
    operands = [rounded(conv, operands[0]), *operands[1:]]

    def body(b: Builder, tensors: Values, tile: Tile, place: PanelPart, wanted: Index) -> None:
        windows = Windows.of(conv, place.group)
        PipelinedPanel(windows, b, tensors, tile, place).emit(conv.tiling.block, wanted)

    return over_blocks(conv, operands, conv.tiling.panels, conv.groups, body)


@emit.register
def emit_pair_convolution(conv: PairConvolution, operands: Operands) -> list[ir.Value]:
    windows = partial(Windows, product=conv, runs=conv.runs, fetches=False)
    return pair_body.multiply(conv, operands, lambda group: windows(group=group))


def _on_tiles(conv: Convolution, operands: Operands) -> list[ir.Value]:
    """The codes of 16 pixels, run after run, each padded to whole chunks, are gathered first."""
    windows = Windows.of(conv)
    if conv.in_place:
        operands = [rounded(conv, operands[0]), *operands[1:]]
        return amx.multiply(conv, operands, windows.sample, _in_place(conv, windows))

    def gather(b: Builder, source: ir.Value, prefix: Indices, first: Index, out: Tile) -> None:
        count = conv.tiles.rows
        corners = [windows.corner(b, b.offset(first, r)) for r in range(count)]
        high, wide = conv.runs

        def chunk(run: Index, h: Index, w: Index, at: Index, valid: int) -> None:
            to = b.offset(b.scaled(run, conv.run_chunks), at)
            for r, corner in enumerate(corners):
                sample, row, column = windows.tap(b, corner, h, w)
                where = [sample, row, b.offset(column, b.scaled(at, conv.chunk))]
                amx.store_row(b, out, 0, to, r, amx.read_row(conv, b, source, where, valid))

        with b.loop(0, high, writes=[out]) as rows, b.loop(0, wide, writes=[out]) as columns:
            h, w = rows.index, columns.index
            run = b.offset(b.scaled(h, wide), w)
            b.sweep(conv.run, conv.chunk, partial(chunk, run, h, w), writes=[out], counted=True)

    rows = amx.pack_tiles(operands[0], conv.tiles, (), gather)
    return amx.multiply(conv, [rows, *operands[1:]], windows.sample)


def _in_place(conv: Convolution, windows: Windows) -> amx.InPlace:
    """The pixels of a line lie at even distances, so that tiles are read where the image is."""
    size, (_, _, wide) = 2 if conv.floats else 1, conv.codes.shape

    def first(b: Builder, _: Indices, pixel: Index, chunk: Index) -> Index:
        run, part = b.divided(chunk, conv.run_chunks), b.modulo(chunk, conv.run_chunks)
        h, w = b.divided(run, conv.runs[1]), b.modulo(run, conv.runs[1])
        sample, row, column = windows.tap(b, windows.corner(b, pixel), h, w)
        line = b.offset(b.scaled(sample, conv.height), row)
        at = b.offset(b.scaled(line, wide), column)
        if conv.run_chunks > 1:
            part = b.at_most(b.scaled(part, conv.chunk), conv.run - conv.chunk)
            return b.scaled(b.offset(at, part), size)
        if conv.spare:
            back = b.scaled(b.divided(h, conv.window[0] - 1), conv.spare)
            at = Position(arith.subi(b.index(at), b.index(back)), high(at))
        return b.scaled(at, size)

    return first, conv.strides[1] * conv.channels * size
