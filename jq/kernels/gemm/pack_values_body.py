"""The body of `PackValues`."""

from collections.abc import Callable
from dataclasses import dataclass

from iree.compiler import ir

from jq.kernels.emit import Builder, Index, Indices, Tile, Tiles, Values, transpose, vec
from jq.kernels.emit.dispatches import Operands, Output, dispatch, emit
from jq.kernels.gemm.description import Gemm
from jq.kernels.gemm.pack_values import PackValues
from jq.kernels.machine.tile_cut import DEPTH, ROWS


@dataclass(frozen=True)
class _Layout:
    """A `Gemm`'s weights as groups of codes along K of `lanes` columns side by side."""

    gemm: Gemm

    @property
    def lanes(self) -> int:
        return ROWS if self.gemm.on_tiles else self.gemm.target.lanes

    @property
    def group(self) -> int:
        return 4 if self.gemm.on_tiles else self.gemm.target.dot.group

    @property
    def groups(self) -> int:
        """Number of groups along all rows, those of padding too."""
        tiles = self.gemm.tiles.chunks * DEPTH // 4
        return tiles if self.gemm.on_tiles else self.gemm.groups

    @property
    def cuts(self) -> tuple[tuple[int, int], tuple[int, int], int]:
        """Ranges of columns, panels of one (how many, and how wide), and vectors of a panel."""
        if self.gemm.on_tiles:
            cut = self.gemm.tiles
            wide = max(cut.range, cut.width)
            return (cut.ranges, wide), (cut.panels, cut.width), cut.vectors
        tiling = self.gemm.tiling
        width = tiling.vectors * self.lanes
        return (1, max(self.gemm.n, width)), (tiling.panels, width), tiling.vectors

    def store(
        self,
        b: Builder,
        tile: Tile,
        at: Indices,
        panel: Index,
        vector: int,
        group: Index,
        v: ir.Value,
    ) -> None:
        """A group's codes of a vector of columns."""
        if not self.gemm.on_tiles:
            b.store(v, tile, [*at, panel, group, vector * self.lanes * self.group])
            return
        number = b.offset(b.scaled(panel, self.gemm.tiles.vectors), vector)
        chunk, rest = b.divided(group, DEPTH // 4), b.modulo(group, DEPTH // 4)
        words = b.bitcast(v, vec(self.lanes, "i32"))
        b.store(words, tile, [*at, number, chunk, b.scaled(rest, ROWS)])


class _Values:
    """The codes of one product, vector of columns by vector of columns."""

    def __init__(self, kernel: PackValues, b: Builder, codes: ir.Value, number: Index) -> None:
        self.kernel, self.b, self.codes = kernel, b, codes
        self.layout = _Layout(kernel.gemm)
        self.at = b.divided(number, kernel.inner), b.modulo(number, kernel.inner)

    def _load(self, row: Index, column: Index, size: int, valid: int) -> ir.Value:
        """Codes of a row of the operand; zeros after `valid` of them."""
        kind = vec(size, "i8")
        if valid <= 0:
            return self.b.constant(kind, 0)
        outer, inner = self.at
        return self.b.load(self.codes, [outer, row, inner, column], kind, valid)

    def groups(self, column: Index, valid: int, first: int | Index, rows: int) -> list[ir.Value]:
        """Groups from row `first` on, of so many rows (of a few groups) of a vector of columns."""
        lanes, group = self.layout.lanes, self.layout.group
        b, size = self.b, lanes * group
        if self.kernel.transposed:
            words = [
                self._load(b.offset(column, i), first, size, rows if i < valid else 0)
                for i in range(lanes)
            ]
            turned = transpose(b, [b.bitcast(w, vec(lanes, f"i{8 * group}")) for w in words])
            return [b.bitcast(v, vec(size, "i8")) for v in turned]
        parts = []
        for j in range(group):
            row = b.offset(first, j) if j < rows else first
            parts.append(self._load(row, column, lanes, valid if j < rows else 0))
        if group == 1:
            return parts
        joined = b.join(parts)
        return [
            b.shuffle(joined, joined, [j * lanes + i for i in range(lanes) for j in range(group)])
        ]

    @property
    def step(self) -> int:
        """Rows that `groups` takes at a time."""
        return self.layout.group * (self.layout.lanes if self.kernel.transposed else 1)

    def column(
        self, column: Index, valid: int, put: Callable[[ir.Value, Index], None], writes: Tiles
    ) -> ir.Value:
        """Packs a vector of columns; its sums, i32."""
        b, layout, k = self.b, self.layout, self.kernel.gemm.k
        each = self.step // layout.group  # groups of a step

        def part(carried: Values, number: Index, rows: int) -> list[ir.Value]:
            (sums,) = carried
            first = b.scaled(number, self.step)
            found = self.groups(column, valid, first, rows)
            for i, v in enumerate(found[: -(-rows // layout.group)]):
                sums = b.add(sums, self._sums(v))
                put(self._flipped(v), b.offset(b.scaled(number, each), i))
            return [sums]

        zero = b.i32(0, layout.lanes)
        (sums,) = b.fold(k, self.step, part, [zero], writes=writes, counted=True)
        nothing = self._flipped(b.constant(vec(layout.lanes * layout.group, "i8"), 0))
        for i in range(-(-k // layout.group), layout.groups):
            put(nothing, i)
        return sums

    def _flipped(self, v: ir.Value) -> ir.Value:
        return v if not self.kernel.gemm.swapped else self.b.xor(v, self.b.constant(v.type, -128))

    def _sums(self, v: ir.Value) -> ir.Value:
        b, lanes, group = self.b, self.layout.lanes, self.layout.group
        total = b.i32(0, lanes)
        for j in range(group):
            codes = b.shuffle(v, v, [i * group + j for i in range(lanes)])
            total = b.add(total, b.extend(codes, "i32"))
        return total


@emit.register
def emit_pack_values(kernel: PackValues, operands: Operands) -> list[ir.Value]:
    layout, gemm = _Layout(kernel.gemm), kernel.gemm
    (ranges, wide), (panels, width), vectors = layout.cuts

    def workgroup(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        codes, numbers = tensors
        values = _Values(kernel, b, codes, ids[0])
        at = [0] * (gemm.batch > 1)
        zero, base = (
            b.broadcast(b.load(numbers, [i], vec(1, "i32")), layout.lanes) for i in (0, 1)
        )
        packed, init = tiles
        with b.loop(0, ranges, writes=tiles) as outer, b.loop(0, panels, writes=tiles) as inner:
            panel = b.offset(b.scaled(outer.index, panels), inner.index)
            start = b.offset(
                b.part(outer.index, wide, max(gemm.n, width)), b.part(inner.index, width, wide)
            )
            for vector in range(vectors):
                first = vector * layout.lanes
                valid = (
                    min(max(gemm.n - first, 0), layout.lanes) if gemm.n < width else layout.lanes
                )

                def put(v: ir.Value, group: Index, vector: int = vector) -> None:
                    layout.store(b, packed, at, panel, vector, group, v)

                column = b.offset(start, first)
                sums = values.column(column, valid, put, [packed])
                if valid > 0:
                    whole = first == 0 and gemm.n < layout.lanes  # of which zeros follow
                    start_of = b.keep(b.sub(base, b.mul(zero, sums)), valid)
                    b.store(start_of, init, [*at, column], None if whole else valid)

    def output(index: int) -> Output:
        kind = kernel.results[index]
        lead = [1] * (gemm.batch > 1)
        rest = kind.shape[len(lead) :]
        return Output(
            kind, (*lead, *rest), lambda b, ids: [*([ids[0]] * len(lead)), *([0] * len(rest))]
        )

    return dispatch(operands, [output(0), output(1)], [gemm.batch], workgroup)
