"""The body of `RowProgram`: lines as vectors of a sweep, or as scalars of a row."""

from collections.abc import Callable

from iree.compiler import ir
from iree.compiler.dialects import arith, math, vector

from jq.kernels.emit import Builder, Operands, Output, Tile, Tiles, dispatch, emit
from jq.kernels.emit.values import Index, Indices, Values, lanes_of, vec
from jq.kernels.machine.tiling import row_block
from jq.kernels.rowwise import row_program
from jq.kernels.rowwise import row_program_ops as ops
from jq.kernels.schedule.rows import Blocks


class _Row:
    """The row that is computed: `known` are its numbers so far, `rows` memory for what later
    sweeps read, `tables` that of the tables, by source."""

    def __init__(self, kernel: row_program.RowProgram, b: Builder, tensors: Values) -> None:
        self.kernel, self.b, self.tensors = kernel, b, tensors
        self.at: Index = 0
        self.known: dict[int, ir.Value] = {}
        self.rows = {
            i: Tile(b.scratch((1, kernel.k), ops.stored(kernel.lines[i].element)), (1, kernel.k))
            for i in sorted(kernel.kept)
        }
        numbers = sorted({line.number for line in kernel.lines if line.op == row_program.TAKE})
        self.tables = {i: self._table(i) for i in numbers}

    def _table(self, number: int) -> ir.Value:
        """A copy in 32 bits, which vectors of indices read."""
        b, source, lanes = self.b, self.kernel.sources[number], self.kernel.target.lanes
        table = b.scratch((1, source.columns), "i32")
        tile = Tile(table, (1, source.columns))

        def copy(column: Index, size: int) -> None:
            kind, some = vec(lanes, source.element), None if size == lanes else size
            entries = b.load(self.tensors[number], [0, column], kind, some)
            b.store(ops.converted(entries, vec(lanes, "i32")), tile, [0, column], some)

        b.sweep(source.columns, lanes, copy)
        return table

    def compute(self, at: Index, tiles: Tiles, local: Index) -> None:
        """One row, to a line of the tiles."""
        stages = self.kernel.stages
        self.at, self.known = at, {}
        for stage in range(stages[-1] + 1):
            self.settle(stage)
            self.sweep(stage, tiles if stage == stages[-1] else (), local)
            self.known |= {i: self.rows[i].value for i in self.rows if stages[i] == stage}

    def sweep(self, stage: int, tiles: Tiles, local: Index) -> None:
        """Everything of a stage that is one number an element; its sums, and what follows them."""
        kernel, b, lines = self.kernel, self.b, self.kernel.lines
        sums = [i for i, line in enumerate(lines) if line.op in row_program.REDUCTIONS]
        ends = [i for i in sums if kernel.stages[lines[i].of[0]] == stage]
        kept = [i for i in self.rows if kernel.stages[i] == stage]
        lanes = kernel.target.lanes

        def body(carried: Values, column: Index, valid: int) -> list[ir.Value]:
            some = None if valid == lanes else valid
            part = _Part(self, column, some)
            for i in kept:
                b.store(ops.byte(part.value(i)), self.rows[i], [0, column], some)
            for i, tile in zip(kernel.stored, tiles, strict=False):
                b.store(part.value(i), tile, [local, column], some)
            return [
                ops.OPS[lines[i].op.removeprefix("reduce_")](
                    old, b.keep(part.value(*lines[i].of), some, ops.start(lines[i]))
                )
                for old, i in zip(carried, ends, strict=True)
            ]

        begin = [b.constant(vec(lanes, lines[i].element), ops.start(lines[i])) for i in ends]
        totals = b.fold(kernel.k, lanes, body, begin, writes=tiles)
        for i, total in zip(ends, totals, strict=True):
            kind, width = getattr(vector.CombiningKind, ops.KINDS[lines[i].op]), total.type
            number = vector.ReductionOp(ir.VectorType(width).element_type, kind, total).result
            self.known[i] = b.broadcast(number, 1)

    def settle(self, stage: int) -> None:
        """The numbers of the row that follow from the sweeps before this stage."""
        kernel = self.kernel
        for i, line in enumerate(kernel.lines):
            if kernel.wide[i] or kernel.stages[i] > stage or i in self.known:
                continue
            if line.op not in (row_program.CONSTANT, *row_program.REDUCTIONS):
                self.known[i] = self._computed(line, lambda j: self.number(j, 1), 0, 1, None)

    def number(self, i: int, lanes: int) -> ir.Value:
        """A number of the row in every lane."""
        line = self.kernel.lines[i]
        if line.op == row_program.CONSTANT:
            return self.b.constant(vec(lanes, line.element), line.number)
        return self.known[i] if lanes == 1 else self.b.broadcast(self.known[i], lanes)

    def source(
        self, line: row_program.Line, column: Index, lanes: int, valid: int | None
    ) -> ir.Value:
        b, source = self.b, self.kernel.sources[line.number]
        row = b.modulo(b.divided(self.at, source.every), source.rows)
        kind = vec(lanes, source.element)
        return b.load(self.tensors[line.number], [row, column], kind, valid)

    def _computed(
        self,
        line: row_program.Line,
        value: Callable[[int], ir.Value],
        column: Index,
        lanes: int,
        valid: int | None,
    ) -> ir.Value:
        """A line of values with so many lanes."""
        if line.op == row_program.SOURCE:
            return self.source(line, column, lanes, valid)
        if line.op == row_program.NUMBER:
            one = self.b.load(self.tensors[-1], [0, line.number], vec(1, "i64"))
            return ops.converted(one, vec(lanes, line.element))
        of = [value(i) for i in line.of]
        if line.op == row_program.TAKE:
            return self._taken(line, of[0])
        if line.op == row_program.CONVERT:
            return ops.converted(of[0], vec(lanes, line.element))
        if line.op in row_program.SHIFTS and not line.number:
            return ops.shifted(self.b, line.op, *of)
        if line.op == "divide":
            return ops.divided(self.b, *of)
        if line.op == row_program.MULTIPLY_HIGH:
            halves = (
                row_program.Line(row_program.CONSTANT, (), "i32", 1 << 30)
                == self.kernel.lines[line.of[1]]
            )
            return ops.halved(self.b, of[0]) if halves else ops.multiplied_high(self.b, *of)
        if line.op == "multiply" and lanes > 1:
            of = [self._half(i, v) for i, v in zip(line.of, of, strict=True)]
        if line.op in ("negate", "not"):
            fill = 0 if line.op == "negate" else -1
            op = arith.subi if line.op == "negate" else arith.xori
            return op(self.b.constant(of[0].type, fill), of[0])
        if line.op == "count_leading_zeros":
            return math.ctlz(of[0])
        if line.op.startswith("compare_"):
            predicate = ops.COMPARED[line.op.removeprefix("compare_")]
            return arith.cmpi(getattr(arith.CmpIPredicate, predicate), *of)
        return ops.OPS[line.op](*of)

    def _half(self, i: int, factor: ir.Value) -> ir.Value:
        """A factor of 64 bits; if it came from 32, so that this is seen beside the product: one
        instruction multiplies such."""
        line, lines = self.kernel.lines[i], self.kernel.lines
        narrow = line.op == row_program.CONVERT and lines[line.of[0]].element != "i64"
        if line.element != "i64" or not narrow or self.kernel.wide[i]:
            return factor
        return self.b.shift_right_signed(self.b.shift_left(factor, 32), 32)

    def _taken(self, line: row_program.Line, index: ir.Value) -> ir.Value:
        """Entries of a table; an index beyond it counts as its first or last."""
        b, source, lanes = self.b, self.kernel.sources[line.number], lanes_of(index)
        wide = ops.converted(index, vec(lanes, "i32"))
        wide = b.min_int(b.max_int(wide, b.i32(0, lanes)), b.i32(source.columns - 1, lanes))
        return ops.converted(
            ops.gathered(b, self.tables[line.number], wide), vec(lanes, source.element)
        )


class _Part:
    """A vector of a row: each line is emitted once."""

    def __init__(self, row: _Row, column: Index, valid: int | None) -> None:
        self.row, self.column, self.valid = row, column, valid
        self.made: dict[int, ir.Value] = {}

    def value(self, number: int) -> ir.Value:
        """A line and, before it, those that it needs."""
        for i in self._needed(number):
            if i not in self.made:
                self.made[i] = self._value(i)
        return self.made[number]

    def _needed(self, number: int) -> list[int]:
        found, todo = set[int](), [number]
        while todo:
            i = todo.pop()
            if i in found:
                continue
            found.add(i)
            if self.row.kernel.wide[i] and not self._read(i):
                todo += self.row.kernel.lines[i].of
        return sorted(found)

    def _read(self, i: int) -> bool:
        """It was stored by a sweep before."""
        return i in self.row.rows and i in self.row.known

    def _value(self, i: int) -> ir.Value:
        row, kernel = self.row, self.row.kernel
        line, lanes = kernel.lines[i], kernel.target.lanes
        if not kernel.wide[i]:
            return row.number(i, lanes)
        if self._read(i):
            return self._loaded(i, line, lanes)
        return row._computed(line, self.made.__getitem__, self.column, lanes, self.valid)

    def _loaded(self, i: int, line: row_program.Line, lanes: int) -> ir.Value:
        kind = vec(lanes, ops.stored(line.element))
        read = self.row.b.load(self.row.rows[i].value, [0, self.column], kind, self.valid)
        return arith.trunci(vec(lanes, "i1"), read) if line.element == "i1" else read


@emit.register
def emit_row_program(kernel: row_program.RowProgram, operands: Operands) -> list[ir.Value]:
    """Sweep after sweep of each row."""
    blocks = Blocks.of(kernel.m, row_block(kernel.m, kernel.k), None)

    def workgroup(b: Builder, ids: Indices, tensors: Values, tiles: Tiles) -> None:
        row, first = _Row(kernel, b, tensors), blocks.first(b, ids[0])
        with b.loop(0, blocks.block, writes=tiles) as loop:
            row.compute(b.offset(first, loop.index), tiles, loop.index)

    def offsets(b: Builder, ids: Indices) -> list[Index]:
        return [blocks.first(b, ids[0]), 0]

    outputs = [Output(kind, (blocks.block, kernel.k), offsets) for kind in kernel.results]
    return dispatch(operands, outputs, [blocks.count], workgroup)
