"""The body of `PairProduct`: a workgroup is a block of rows by a range of a group's panels."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from iree.compiler import ir

from jq.kernels.emit import Builder, Index, Indices, Tile, Values, vec
from jq.kernels.emit.dispatches import Operands, emit
from jq.kernels.gemm.body import MatrixRows, over_blocks
from jq.kernels.gemm.pair_order import CHAIN
from jq.kernels.gemm.pair_product import COUNTS, PairGemm, PairProduct
from jq.kernels.gemm.pair_weights import STAGE
from jq.kernels.gemm.panel import Panel, Run
from jq.kernels.gemm.source import PanelPart, Source

WORD = 4  # codes that a lane multiplies at a time


class PairPanel(Panel):
    """A panel whose codes are put in the order of its weights."""

    def __init__(
        self,
        kernel: PairProduct,
        source: Source,
        b: Builder,
        tensors: Values,
        tile: Tile,
        place: PanelPart,
    ) -> None:
        codes, weights, self.order, self.plan, *rest = tensors
        super().__init__(source, b, [codes, weights, *rest], tile, place)
        self.kernel = kernel

    def _first_sums(self, starts: Values) -> list[ir.Value]:
        """The start of sums, by panel: columns of two panels are taken differently in each."""
        lanes = self.isa.lanes
        return [self.b.load(starts[0], [self.b.scaled(self.place.panel, lanes)], vec(lanes, "i32"))]

    def _run(self, acc: list[ir.Value], run: Run) -> list[ir.Value]:
        b, kernel = self.b, self.kernel
        stage = b.scratch([len(run.starts), kernel.depth], "i8")

        def segment(acc: Values, number: Index, length: int) -> list[ir.Value]:
            at = [self.place.panel, b.offset(b.scaled(run.number, kernel.parts), number)]
            self._put_in_order(run.starts, b.scaled(number, STAGE), length, at, stage)
            proven, by_pairs = (b.read_index(self.plan, [*at, i], kernel.chains) for i in (0, 1))
            with b.loop(0, proven, carry=acc) as loop:
                loop.carried = self._chain(loop.carried, at, loop.index, stage, True)
            with b.loop(0, by_pairs, carry=loop.carried) as loop:
                chain = b.at_most(b.offset(proven, loop.index), kernel.chains - 1)
                loop.carried = self._chain(loop.carried, at, chain, stage, False)
            return loop.carried

        return b.fold(kernel.run, STAGE, segment, acc, counted=True)

    def _put_in_order(
        self,
        starts: Sequence[Indices],
        first: Index,
        length: int,
        segment: Indices,
        stage: ir.Value,
    ) -> None:
        """`length` codes of each row's run from `first` on, as the panel's weights take them."""
        b, isa = self.b, self.isa
        size = 4 * isa.lanes
        kind = vec(size, "i8")

        def some(at: Index, valid: int) -> None:
            where, mask = (b.load(self.order, [*segment, i, at], kind) for i in (0, 1))
            begin = b.offset(first, at)
            for i, (*lead, column) in enumerate(starts):
                codes = b.load(self.codes, [*lead, b.offset(column, begin)], kind, valid)
                moved = b.intrinsic(isa.shuffles, kind, [codes, where])
                b.put(b.xor(moved, mask), stage, [i, at])

        b.sweep(length, size, some)

    def _chain(
        self, acc: Values, segment: Indices, chain: Index, stage: ir.Value, proven: bool
    ) -> list[ir.Value]:
        """The accumulators after eight codes of each row."""
        b, isa, kernel = self.b, self.isa, self.kernel
        at = b.read_index(self.plan, [*segment, b.offset(chain, COUNTS)], kernel.depth - CHAIN)
        size = WORD * isa.lanes
        weights = [
            b.load(self.weights, [*segment, chain, i * size], vec(size, "i8")) for i in (0, 1)
        ]
        out = []
        for i, value in enumerate(acc):
            pairs = []
            for word, weight in enumerate(weights):
                codes = b.get(stage, [i, b.offset(at, word * WORD)], vec(WORD, "i8"))
                spread = b.broadcast(b.bitcast(codes, vec(1, "i32")), isa.lanes)
                operands = [b.bitcast(spread, vec(size, "i8")), weight]
                pairs.append(b.intrinsic(isa.pairs, vec(size // 2, "i16"), operands))
            for pair in [b.add(*pairs)] if proven else pairs:
                ones = b.constant(pair.type, 1)
                wide = b.intrinsic(isa.dot.intrinsic, vec(isa.lanes, "i32"), [pair, ones])
                value = b.add(value, wide)
            out.append(value)
        return out


def multiply(
    kernel: PairProduct, operands: Operands, source: Callable[[Index], Source]
) -> list[ir.Value]:
    """The dispatch; `source(group)` says where the codes of a group's rows lie."""
    lanes = kernel.target.lanes

    def body(b: Builder, tensors: Values, tile: Tile, place: PanelPart, wanted: Index) -> None:
        with b.loop(0, kernel.range, writes=[tile]) as loop:
            panel, to = b.offset(place.panel, loop.index), b.part(loop.index, lanes, tile.shape[-1])
            part = replace(place, column=b.offset(place.column, to), panel=panel, to=to)
            columns = PairPanel(kernel, source(place.group), b, tensors, tile, part)
            columns.emit(kernel.tiling.block, wanted)

    return over_blocks(kernel, operands, kernel.ranges, kernel.groups, body)


@emit.register
def emit_pair_gemm(kernel: PairGemm, operands: Operands) -> list[ir.Value]:
    rows = MatrixRows(product=kernel, prefix=(), fetches=False)
    return multiply(kernel, operands, lambda group: rows)
