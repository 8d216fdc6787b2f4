"""A small typed builder of kernel bodies over IREE's MLIR bindings.

A kernel body is a `flow.dispatch.workgroups` region: `vector`, `arith`, `scf` and target intrinsics
on tensors. Every value is an `ir.Value` and carries its type; no IR passes through text.
Output tiles are value-semantics tensors underneath: a `Tile` holds the current one, and a loop that
writes a tile threads it, so that a body reads like a loop nest over buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from iree.compiler import ir
from iree.compiler.dialects import (
    arith,
    flow,
    iree_tensor_ext,
    llvm,
    math,
    memref,
    scf,
    tensor,
    vector,
)

from jq.errors import InternalError
from jq.kernels.tensor import TensorType


@dataclass(frozen=True)
class Position:
    """A computed index and its largest value; the smallest is at least 0.

    Positions start as workgroup ids and loop indices, whose ranges are known, and keep their
    range through arithmetic: every load and store is proven in bounds while it is emitted.
    """

    value: ir.Value
    high: int


Index = Position | int


@dataclass
class Tile:
    """The part of an output that one workgroup writes; `value` is its current tensor."""

    value: ir.Value


@dataclass
class Loop:
    """An open loop: its induction variable and what it carries from one trip to the next."""

    index: Index
    carried: list[ir.Value] = field(default_factory=list)


@dataclass(frozen=True)
class Output:
    """A result of a dispatch: its whole type, the tile of a workgroup, and where that tile is."""

    whole: TensorType
    tile: tuple[int, ...]
    offsets: Callable[[Builder, Sequence[Index]], Sequence[Index]]


def high(index: Index) -> int:
    """The largest value of an index."""
    return index if isinstance(index, int) else index.high


def element(name: str) -> ir.Type:
    return ir.Type.parse(name)


def vec(lanes: int, name: str) -> ir.VectorType:
    """`vector<lanes x name>`."""
    return ir.VectorType.get([lanes], element(name))


def lanes_of(value: ir.Value) -> int:
    return int(ir.VectorType(value.type).shape[0])


class Builder:
    """Emits ops at the current insertion point of one dispatch body."""

    def __init__(self, entry: ir.Block) -> None:
        self._entry = entry
        self._constants: dict[tuple[str, object], ir.Value] = {}

    # Constants: one op for each type and value, at the start of the body

    def constant(self, kind: ir.Type, value: float) -> ir.Value:
        """A scalar, or every lane of a vector."""
        key = (str(kind), value)
        if key not in self._constants:
            scalar = kind.element_type if isinstance(kind, ir.VectorType) else kind
            is_float = isinstance(scalar, ir.FloatType)
            attr: ir.Attribute = (
                ir.FloatAttr.get(scalar, float(value))
                if is_float
                else ir.IntegerAttr.get(scalar, int(value))
            )
            if isinstance(kind, ir.VectorType):
                attr = ir.DenseElementsAttr.get_splat(kind, attr)
            with ir.InsertionPoint.at_block_begin(self._entry):
                self._constants[key] = arith.ConstantOp(kind, attr).result
        return self._constants[key]

    def index(self, value: Index) -> ir.Value:
        if isinstance(value, int):
            return self.constant(ir.IndexType.get(), value)
        return value.value

    def f32(self, value: float, lanes: int) -> ir.Value:
        return self.constant(vec(lanes, "f32"), value)

    def i32(self, value: int, lanes: int) -> ir.Value:
        return self.constant(vec(lanes, "i32"), value)

    # Index arithmetic folds what is known while building

    def offset(self, base: Index, by: Index) -> Index:
        if isinstance(base, int) and isinstance(by, int):
            return base + by
        if by == 0:
            return base
        if base == 0:
            return by
        return Position(arith.addi(self.index(base), self.index(by)), high(base) + high(by))

    def scaled(self, value: Index, by: int) -> Index:
        if isinstance(value, int):
            return value * by
        if by == 1:
            return value
        return Position(arith.muli(value.value, self.index(by)), value.high * by)

    def divided(self, value: Index, by: int) -> Index:
        """value // by."""
        if isinstance(value, int):
            return value // by
        if by == 1:
            return value
        return Position(arith.divui(value.value, self.index(by)), value.high // by)

    def modulo(self, value: Index, by: int) -> Index:
        """value % by."""
        if isinstance(value, int):
            return value % by
        if value.high < by:
            return value
        return Position(arith.remui(value.value, self.index(by)), by - 1)

    def at_most(self, value: Index, bound: int) -> Index:
        """min(value, bound)."""
        if isinstance(value, int):
            return min(value, bound)
        if value.high <= bound:
            return value
        return Position(arith.minui(value.value, self.index(bound)), bound)

    # Memory: every access is in bounds by construction; `valid` lanes are touched, no more

    def load(
        self,
        source: ir.Value,
        at: Sequence[Index],
        kind: ir.VectorType,
        valid: int | None = None,
    ) -> ir.Value:
        """Lanes of `source` from `at` along its last axis; lanes past `valid` are zero."""
        lanes = int(kind.shape[0])
        width = lanes if valid is None else min(valid, lanes)
        _check_bounds(source.type, at, width)
        narrow = ir.VectorType.get([width], kind.element_type)
        read = vector.TransferReadOp(
            narrow,
            source,
            [self.index(i) for i in at],
            _minor_identity(len(at)),
            padding=self.constant(kind.element_type, 0),
            in_bounds=ir.ArrayAttr.get([ir.BoolAttr.get(True)]),
        ).result
        if width == lanes:
            return read
        zero = self.constant(narrow, 0)
        return self.shuffle(read, zero, [min(i, width) for i in range(lanes)])

    def store(
        self, value: ir.Value, tile: Tile, at: Sequence[Index], valid: int | None = None
    ) -> None:
        """Writes the first `valid` lanes of `value` from `at` along the tile's last axis."""
        if valid is not None and valid < lanes_of(value):
            value = self.shuffle(value, value, list(range(valid)))
        _check_bounds(tile.value.type, at, lanes_of(value))
        tile.value = vector.TransferWriteOp(
            tile.value.type,
            value,
            tile.value,
            [self.index(i) for i in at],
            _minor_identity(len(at)),
            in_bounds=ir.ArrayAttr.get([ir.BoolAttr.get(True)]),
        ).result

    def scratch(self, shape: Sequence[int], name: str) -> ir.Value:
        """Stack memory of a workgroup, written with `put` and read with `get`."""
        kind = ir.MemRefType.get(list(shape), element(name))
        with ir.InsertionPoint.at_block_begin(self._entry):
            return memref.alloca(kind, [], [], alignment=64)

    def get(self, scratch: ir.Value, at: Sequence[Index], kind: ir.VectorType) -> ir.Value:
        _check_bounds(scratch.type, at, int(kind.shape[0]))
        return vector.LoadOp(kind, scratch, [self.index(i) for i in at]).result

    def put(self, value: ir.Value, scratch: ir.Value, at: Sequence[Index]) -> None:
        _check_bounds(scratch.type, at, lanes_of(value))
        vector.StoreOp(value, scratch, [self.index(i) for i in at])

    # Loops

    @contextmanager
    def loop(
        self,
        lower: int,
        upper: int,
        step: int = 1,
        *,
        carry: Sequence[ir.Value] = (),
        writes: Sequence[Tile] = (),
    ) -> Iterator[Loop]:
        """`for index in range(lower, upper, step)`.

        The body assigns `loop.carried`; after the block it holds the results. A loop of a single
        known trip emits its body alone.
        """
        last = lower + (upper - 1 - lower) // step * step
        if last == lower:
            yield Loop(lower, list(carry))
            return
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

    # Lanes

    def shuffle(self, a: ir.Value, b: ir.Value, lanes: Sequence[int]) -> ir.Value:
        return vector.ShuffleOp(a, b, list(lanes)).result

    def concat(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.shuffle(a, b, list(range(lanes_of(a) + lanes_of(b))))

    def keep(self, value: ir.Value, valid: int | None, fill: float = 0) -> ir.Value:
        """The first `valid` lanes (None: all), `fill` in the others."""
        lanes = lanes_of(value)
        if valid is None or valid >= lanes:
            return value
        other = self.constant(value.type, fill)
        return self.shuffle(value, other, [i if i < valid else lanes for i in range(lanes)])

    def bitcast(self, value: ir.Value, kind: ir.VectorType) -> ir.Value:
        return value if value.type == kind else vector.BitCastOp(kind, value).result

    def broadcast(self, value: ir.Value, lanes: int) -> ir.Value:
        """A scalar, or a vector of one lane, in every lane."""
        kind = value.type
        scalar = kind.element_type if isinstance(kind, ir.VectorType) else kind
        return vector.BroadcastOp(ir.VectorType.get([lanes], scalar), value).result

    def reduce(
        self, value: ir.Value, combine: Callable[[ir.Value, ir.Value], ir.Value]
    ) -> ir.Value:
        """All lanes combined in a fixed tree (halves first), in every lane of the result."""
        lanes = lanes_of(value)
        distance = lanes // 2
        while distance:
            other = self.shuffle(value, value, [i ^ distance for i in range(lanes)])
            value = combine(value, other)
            distance //= 2
        return value

    # Arithmetic: integer or float by the operands' type

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.addf(a, b) if _is_float(a) else arith.addi(a, b)

    def sub(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.subf(a, b) if _is_float(a) else arith.subi(a, b)

    def mul(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.mulf(a, b) if _is_float(a) else arith.muli(a, b)

    def div(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.divf(a, b)

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        return math.fma(a, b, c)

    def rounded(self, a: ir.Value) -> ir.Value:
        """`a`, rounded as it stands: keeps a product from being contracted into a following sum."""
        kind = ir.VectorType(a.type)
        return self.intrinsic(f"llvm.arithmetic.fence.v{kind.shape[0]}f32", kind, [a])

    def sqrt(self, a: ir.Value) -> ir.Value:
        return math.sqrt(a)

    def abs(self, a: ir.Value) -> ir.Value:
        return math.absf(a)

    def max(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """`a > b ? a : b`: one instruction on every target, and b where either is NaN."""
        return arith.select(arith.cmpf(arith.CmpFPredicate.OGT, a, b), a, b)

    def min(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """`a < b ? a : b`."""
        return arith.select(arith.cmpf(arith.CmpFPredicate.OLT, a, b), a, b)

    def clamp(self, a: ir.Value, low: float, high: float) -> ir.Value:
        lanes = lanes_of(a)
        return self.min(self.max(a, self.f32(low, lanes)), self.f32(high, lanes))

    def select_equal(self, x: ir.Value, y: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """`x == y ? a : b` on floats; NaN equals nothing."""
        return arith.select(arith.cmpf(arith.CmpFPredicate.OEQ, x, y), a, b)

    def zero_if_nan(self, a: ir.Value) -> ir.Value:
        return self.select_equal(a, a, a, self.f32(0.0, lanes_of(a)))

    def to_f32(self, a: ir.Value) -> ir.Value:
        return arith.sitofp(vec(lanes_of(a), "f32"), a)

    def reinterpret(self, a: ir.Value, name: str) -> ir.Value:
        """The same bits as another element type of the same width."""
        return arith.bitcast(vec(lanes_of(a), name), a)

    def widen(self, a: ir.Value) -> ir.Value:
        """f16 as f32; f32 as it is."""
        kind = vec(lanes_of(a), "f32")
        return a if a.type == kind else arith.extf(kind, a)

    def extend(self, a: ir.Value, name: str) -> ir.Value:
        """Sign extension.

        IREE 3.13 turns `extsi` of a `vector.bitcast` into masks and logical shifts, which loses the
        sign: there the sign is brought in by shifts.
        """
        kind = vec(lanes_of(a), name)
        if not isinstance(a.owner, ir.Operation | ir.OpView) or a.owner.name != "vector.bitcast":
            return arith.extsi(kind, a)
        by = kind.element_type.width - ir.VectorType(a.type).element_type.width
        shifted = self.shift_left(arith.extui(kind, a), by)
        return arith.shrsi(shifted, self.constant(kind, by))

    def extend_unsigned(self, a: ir.Value, name: str) -> ir.Value:
        return arith.extui(vec(lanes_of(a), name), a)

    def truncate(self, a: ir.Value, name: str) -> ir.Value:
        kind = vec(lanes_of(a), name)
        return arith.truncf(kind, a) if _is_float(a) else arith.trunci(kind, a)

    def xor(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.xori(a, b)

    def bit_and(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.andi(a, b)

    def shift_left(self, a: ir.Value, by: int) -> ir.Value:
        return arith.shli(a, self.constant(a.type, by))

    def shift_right(self, a: ir.Value, by: int) -> ir.Value:
        """Logical: zeros come in."""
        return arith.shrui(a, self.constant(a.type, by))

    def intrinsic(self, name: str, result: ir.Type, args: Sequence[ir.Value]) -> ir.Value:
        """A call of an LLVM intrinsic; the target must have it (the compiler aborts otherwise)."""
        return llvm.CallIntrinsicOp(result, name, list(args), [], []).results[0]


def dispatch(
    inputs: Sequence[tuple[ir.Value, TensorType]],
    outputs: Sequence[Output],
    workgroups: Sequence[int],
    body: Callable[[Builder, Sequence[Index], Sequence[ir.Value], Sequence[Tile]], None],
) -> list[ir.Value]:
    """A dispatch over `workgroups` (x fastest) at the current insertion point; its results.

    `body(builder, workgroup_ids, input_tensors, output_tiles)` emits the work of one workgroup.
    """
    results = [o.whole.mlir() for o in outputs]
    op = flow.DispatchWorkgroupsOp(results, [], [value for value, _ in inputs], [], [])
    _count(op.workgroup_count, workgroups)
    arguments = [_placeholder("readonly", t) for _, t in inputs]
    arguments += [_placeholder("writeonly", o.whole) for o in outputs]
    block = ir.Block.create_at_start(op.workgroup_body, arguments)
    builder = Builder(block)
    with ir.InsertionPoint(block):
        ids = [
            0 if n == 1 else Position(flow.DispatchWorkgroupIDOp(axis).result, n - 1)
            for axis, n in enumerate(workgroups)
        ]
        tensors = [_load_whole(a, t) for a, (_, t) in zip(block.arguments, inputs, strict=False)]
        tiles = [
            Tile(tensor.EmptyOp(list(o.tile), element(o.whole.element)).result) for o in outputs
        ]
        body(builder, ids, tensors, tiles)
        targets = list(block.arguments)[len(inputs) :]
        for tile, output, target in zip(tiles, outputs, targets, strict=True):
            _store_tile(tile.value, target, output, output.offsets(builder, ids))
        flow.ReturnOp([])
    return list(op.results)


def _count(region: ir.Region, workgroups: Sequence[int]) -> None:
    with ir.InsertionPoint(ir.Block.create_at_start(region, [])):
        sizes = [*workgroups, *([1] * (3 - len(workgroups)))]
        index = ir.IndexType.get()
        flow.ReturnOp([arith.ConstantOp(index, ir.IntegerAttr.get(index, n)) for n in sizes])


def _placeholder(access: str, kind: TensorType) -> ir.Type:
    return ir.Type.parse(f"!iree_tensor_ext.dispatch.tensor<{access}:{kind.mlir()}>")


def _load_whole(source: ir.Value, kind: TensorType) -> ir.Value:
    rank = len(kind.shape)
    return iree_tensor_ext.DispatchTensorLoadOp(
        kind.mlir(), source, [], [], [], [], [0] * rank, list(kind.shape), [1] * rank
    ).result


def _store_tile(
    value: ir.Value, target: ir.Value, output: Output, offsets: Sequence[Index]
) -> None:
    for offset, size, bound in zip(offsets, output.tile, output.whole.shape, strict=True):
        if high(offset) + size > bound:
            raise InternalError(f"tile {output.tile} leaves {output.whole}")
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    iree_tensor_ext.DispatchTensorStoreOp(
        value,
        target,
        [],
        [o.value for o in offsets if not isinstance(o, int)],
        [],
        [],
        [o if isinstance(o, int) else dynamic for o in offsets],
        list(output.tile),
        [1] * len(output.tile),
    )


def _check_bounds(kind: ir.Type, at: Sequence[Index], lanes: int) -> None:
    """Raises when an access of `lanes` elements at its largest position leaves the buffer."""
    shape = ir.ShapedType(kind).shape
    ends = [high(i) + 1 for i in at[:-1]] + [high(at[-1]) + lanes]
    if len(ends) != len(shape) or any(e > n for e, n in zip(ends, shape, strict=True)):
        raise InternalError(f"access up to {ends} of a buffer of shape {list(shape)}")


def _minor_identity(rank: int) -> ir.AffineMapAttr:
    return ir.AffineMapAttr.get(ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(rank - 1)]))


def _is_float(value: ir.Value) -> bool:
    kind = value.type
    scalar = kind.element_type if isinstance(kind, ir.VectorType) else kind
    return isinstance(scalar, ir.FloatType)
