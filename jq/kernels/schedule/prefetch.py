"""Weights are fetched into the second cache one panel ahead of the products that read them.

    panel p, tile t, step k:   products of panel p;  prefetch line t * steps + k of panel p + 1

A model's weights come from memory in every call, and the first tile of a panel would wait for them:
it reads a line every few cycles, several times what memory gives. The tiles of the panel before
take long enough. After the last panel lie the weights of the kernel that comes next: constants are
stored in the order of their use. A prefetch of an address that does not exist does nothing.

Bodies work on tensors, which have no address: a function that IREE calls with the buffers of its
operands (a "microkernel") stores that of its first one into its second. LLVM inlines it."""

import math
from dataclasses import dataclass
from typing import Any

from iree.compiler import ir
from iree.compiler.dialects import arith, func, llvm, memref, tensor

from jq.kernels.emit import Builder, Index
from jq.kernels.machine import LINE, Isa

SHARE = 0.75  # of the second cache, for two panels
LEAST = 4 << 10  # bytes of a panel: less is there soon enough
FEW_ROWS = 256  # products of 512 take 40 times as long as their weights do
LOCALITY, FIRST = 2, 3  # into the second cache, and into the first


@dataclass(frozen=True)
class Prefetch:
    """Fetches the panel after one.

    Attributes:
        address: of all weights, i64.
        first: the byte after the panel.
        lines: of a panel.
        steps: of a tile's products.
        tall: rows of a tile.
        each: lines a step."""

    b: Builder
    address: ir.Value
    first: Index
    lines: int
    steps: int
    tall: int
    each: int

    @staticmethod
    def of(
        b: Builder, isa: Isa, weights: ir.Value, panel: Index, rows: int, block: int, tall: int
    ) -> "Prefetch | None":
        """The prefetches of packed weights [panels, steps, elements], for so many rows, of which
        tiles of `tall` read a panel for a block at a time; None where it does not pay: products of
        many rows take much longer than their weights do, a single tile has no time in which to
        fetch, a panel is small, or two do not fit the cache."""
        kind = ir.RankedTensorType(weights.type)
        _, steps, width = kind.shape
        size, tiles = steps * width * _bytes(kind), math.ceil(block / tall)
        pays = LEAST <= size <= SHARE / 2 * isa.memory.second_cache
        if rows > FEW_ROWS or tiles < 2 or not pays:
            return None
        lines = math.ceil(size / LINE)
        each = math.ceil(lines / (tiles * steps))
        behind = b.scaled(b.offset(panel, 1), size)
        return Prefetch(b, address(weights), behind, lines, steps, tall, each)

    def tile(self, first: Index) -> Index:
        """The tile that begins at a row of the block; the last one may begin ahead of its place."""
        return self.b.divided(self.b.offset(first, self.tall - 1), self.tall)

    def fetch(self, tile: Index, step: Index) -> None:
        """The lines of one step of a tile."""
        b = self.b
        at = b.scaled(b.offset(b.scaled(tile, self.steps), step), self.each)
        for i in range(self.each):
            line = b.at_most(b.offset(at, i), self.lines - 1)
            fetch(b, self.address, b.offset(self.first, b.scaled(line, LINE)))


def fetch(b: Builder, address: ir.Value, offset: Index, locality: int = LOCALITY) -> None:
    """The line at a byte after an address."""
    wide = arith.index_cast(_i64(), b.index(offset))
    pointer = llvm.inttoptr(ir.Type.parse("!llvm.ptr"), arith.addi(address, wide))
    llvm.intr_prefetch(pointer, 0, locality, 1)


def _i64() -> ir.Type:
    return ir.IntegerType.get_signless(64)


def address(source: ir.Value, what: str = "address") -> ir.Value:
    """The address, i64, of a tensor that a body reads: once, where the tensor is, as `what`."""
    read: Any = source.owner
    name = _define(read.operation.block.owner.operation, ir.RankedTensorType(source.type), what)
    with ir.InsertionPoint.after(read):
        space = tensor.EmptyOp([1], _i64()).result
        found = ir.Operation.create(
            "iree_codegen.ukernel.generic",
            results=[space.type],
            operands=[source, space],
            attributes={
                "u_kernel_fn_name": ir.StringAttr.get(name),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 0]),
                "strided_dims": ir.Attribute.parse("[[], []]"),
                "calls": ir.FlatSymbolRefAttr.get(name),  # or it would be removed: nobody names it
            },
        ).result
        return tensor.extract(found, [arith.ConstantOp(ir.IndexType.get(), 0)])


def _bytes(kind: ir.ShapedType) -> int:
    """The size of an element."""
    found: Any = kind.element_type
    return int(found.width) // 8


def _define(body: ir.Operation, kind: ir.ShapedType, what: str) -> str:
    """The function's name; it stands in front of a body, named after it: IREE puts all bodies of a
    program into one module. It takes the base and the offset of elements, and those of a number."""
    name = f"{ir.StringAttr(body.attributes['sym_name']).value}_{what}"
    index = ir.IndexType.get()
    one, other = (ir.MemRefType.get([], t) for t in (kind.element_type, _i64()))
    with ir.InsertionPoint(body):
        function = func.FuncOp(name, ([one, index, other, index], []), visibility="private")
    entry = function.add_entry_block()
    with ir.InsertionPoint(entry):
        base, offset, result, _ = entry.arguments
        start = memref.ExtractAlignedPointerAsIndexOp(base).aligned_pointer
        size = arith.ConstantOp(index, ir.IntegerAttr.get(index, _bytes(kind)))
        place = arith.addi(start, arith.muli(offset, size))
        memref.StoreOp(arith.index_cast(_i64(), place), result, [])
        func.ReturnOp([])
    return name
