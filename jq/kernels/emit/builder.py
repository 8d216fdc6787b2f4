"""A small typed builder of kernel bodies over IREE's MLIR bindings.

A kernel body is the function of a `flow.executable`. Output tiles are value-semantics tensors
underneath: a `Tile` holds the current one, and a loop that writes a tile threads it, so that a body
reads like a loop nest over buffers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from iree.compiler import ir
from iree.compiler.dialects import arith, memref, scf, vector

from jq.base.errors import InternalError
from jq.kernels.emit.positions import Positions
from jq.kernels.emit.values import (
    Index,
    Indices,
    Position,
    Values,
    element,
    high,
    lanes_of,
    minor_identity,
    vec,
)


@dataclass
class Tile:
    """The part of an output that one workgroup writes; `value` is its current tensor, or scratch
    memory that is written as one. `shape` bounds what is written."""

    value: ir.Value
    shape: tuple[int, ...]

    @property
    def in_memory(self) -> bool:
        return isinstance(self.value.type, ir.MemRefType)


Tiles = Sequence[Tile]


@dataclass
class Loop:
    """An open loop: its induction variable and what it carries from one trip to the next."""

    index: Index
    carried: list[ir.Value] = field(default_factory=list)


class Builder(Positions):
    """Emits ops at the current insertion point of one dispatch body: memory and loops."""

    # Memory: every access is in bounds by construction; `valid` lanes are touched, no more

    def load(
        self, source: ir.Value, at: Indices, kind: ir.VectorType, valid: int | None = None
    ) -> ir.Value:
        """Lanes of `source` from `at` along its last axis; lanes past `valid` are zero."""
        lanes = int(kind.shape[0])
        width = lanes if valid is None else min(valid, lanes)
        _check_bounds(_shape(source), at, width)
        narrow = ir.VectorType.get([width], kind.element_type)
        read = vector.TransferReadOp(
            narrow,
            source,
            [self.index(i) for i in at],
            minor_identity(len(at)),
            padding=self.constant(kind.element_type, 0),
            in_bounds=ir.ArrayAttr.get([ir.BoolAttr.get(True)]),
        ).result
        if width == lanes:
            return read
        zero = self.constant(narrow, 0)
        return self.shuffle(read, zero, [min(i, width) for i in range(lanes)])

    def read_index(self, source: ir.Value, at: Indices, most: int) -> Index:
        """An i32 of `source` as an index; what is not in 0 .. most counts as `most`."""
        one = self.load(source, at, vec(1, "i32"))
        scalar = vector.extract(one, [], [0])
        wide = arith.index_cast(ir.IndexType.get(), scalar)  # a negative one is huge, unsigned
        return Position(arith.minui(wide, self.index(most)), most)

    def store(self, value: ir.Value, tile: Tile, at: Indices, valid: int | None = None) -> None:
        """Writes the first `valid` lanes of `value` from `at` along the tile's last axis."""
        if valid is not None and valid < lanes_of(value):
            value = self.shuffle(value, value, list(range(valid)))
        if tile.in_memory:
            self.put(value, tile.value, at)
            return
        _check_bounds(tile.shape, at, lanes_of(value))
        tile.value = vector.TransferWriteOp(
            tile.value.type,
            value,
            tile.value,
            [self.index(i) for i in at],
            minor_identity(len(at)),
            in_bounds=ir.ArrayAttr.get([ir.BoolAttr.get(True)]),
        ).result

    def scratch(self, shape: Sequence[int], name: str) -> ir.Value:
        """Stack memory of a workgroup, written with `put` and read with `get`."""
        kind = ir.MemRefType.get(list(shape), element(name))
        with ir.InsertionPoint.at_block_begin(self._entry):
            return memref.alloca(kind, [], [], alignment=64)

    def get(self, scratch: ir.Value, at: Indices, kind: ir.VectorType) -> ir.Value:
        _check_bounds(_shape(scratch), at, int(kind.shape[0]))
        return vector.LoadOp(kind, scratch, [self.index(i) for i in at]).result

    def put(self, value: ir.Value, scratch: ir.Value, at: Indices) -> None:
        _check_bounds(_shape(scratch), at, lanes_of(value))
        vector.StoreOp(value, scratch, [self.index(i) for i in at])

    @contextmanager
    def loop(
        self, lower: int, upper: Index, step: int = 1, *, carry: Values = (), writes: Tiles = ()
    ) -> Iterator[Loop]:
        """`for index in range(lower, upper, step)`. The body assigns `loop.carried`, which holds
        the results after the block. A loop of a single known trip emits its body alone."""
        last = lower + (high(upper) - 1 - lower) // step * step
        if last == lower and isinstance(upper, int):
            yield Loop(lower, list(carry))
            return
        writes = [tile for tile in writes if not tile.in_memory]
        op = scf.ForOp(
            self.index(lower),
            self.index(upper),
            self.index(step),
            [*carry, *(tile.value for tile in writes)],
        )
        inner = list(op.inner_iter_args)
        index = Position(op.induction_variable, last)
        loop = Loop(index, inner[: len(carry)])
        for tile, value in zip(writes, inner[len(carry) :], strict=True):
            tile.value = value
        with ir.InsertionPoint(op.body):
            yield loop
            scf.YieldOp([*loop.carried, *(tile.value for tile in writes)])
        results = list(op.results)
        loop.carried = results[: len(carry)]
        for tile, value in zip(writes, results[len(carry) :], strict=True):
            tile.value = value

    def fold(
        self,
        length: int,
        step: int,
        body: Callable[[list[ir.Value], Index, int], Values],
        carry: Values = (),
        *,
        writes: Tiles = (),
        counted: bool = False,
    ) -> list[ir.Value]:
        """`body(carried, at, size)` along `length` elements, `step` of them at a time: a loop, and
        after it what is left. `counted`: `at` is the number of the part, not its first element."""
        (whole, tail), carried = divmod(length, step), list(carry)
        by = 1 if counted else step
        if whole:
            with self.loop(0, whole * by, by, carry=carried, writes=writes) as loop:
                loop.carried = list(body(loop.carried, loop.index, step))
            carried = loop.carried
        return list(body(carried, whole * by, tail)) if tail else carried

    def sweep(
        self, length: int, step: int, body: Callable[[Index, int], None], **options: Any
    ) -> None:
        """`fold` of a body that carries nothing: `body(at, size)`."""

        def part(_: Values, at: Index, size: int) -> Values:
            body(at, size)
            return ()

        self.fold(length, step, part, **options)

    def rarely(
        self, condition: ir.Value, body: Callable[[], Values], otherwise: Values
    ) -> list[ir.Value]:
        """The values of a body, which writes no tile, where a condition holds; else `otherwise`."""
        op = scf.IfOp(condition, [value.type for value in otherwise], has_else=True)
        with ir.InsertionPoint(op.then_block):
            scf.YieldOp(list(body()))
        with ir.InsertionPoint(op.else_block):
            scf.YieldOp(list(otherwise))
        return list(op.results)


def _shape(buffer: ir.Value) -> Sequence[int]:
    return list(ir.ShapedType(buffer.type).shape)


def _check_bounds(shape: Sequence[int], at: Indices, lanes: int) -> None:
    """Raises when an access of `lanes` elements at its largest position leaves the buffer."""
    ends = [high(i) + 1 for i in at[:-1]] + [high(at[-1]) + lanes]
    if len(ends) != len(shape) or any(e > n for e, n in zip(ends, shape, strict=True)):
        raise InternalError(f"access up to {ends} of a buffer of shape {list(shape)}")
