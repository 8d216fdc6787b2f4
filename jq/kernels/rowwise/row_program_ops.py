"""Operations of `RowProgram` on vectors of integers."""

from collections.abc import Callable

from iree.compiler import ir
from iree.compiler.dialects import arith, llvm, math, memref

from jq.kernels.emit import Builder, lanes_of, vec
from jq.kernels.epilogue.rescale_emitter import halves, high_half
from jq.kernels.rowwise.row_program import Line


def shifted(b: Builder, op: str, x: ir.Value, by: ir.Value) -> ir.Value:
    """The shifted number; all bits are out where the amount is not within the element."""
    bits = ir.VectorType(x.type).element_type.width
    last = b.constant(x.type, bits - 1)
    inside = arith.cmpi(arith.CmpIPredicate.ule, by, last)
    shifted = OPS[op](x, arith.select(inside, by, last))
    signed = op == "shift_right_arithmetic"
    return shifted if signed else arith.select(inside, shifted, b.constant(x.type, 0))


def divided(b: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """`x / y` towards 0; -1 for y = 0, and x where x / -1 does not exist."""
    bits = ir.VectorType(x.type).element_type.width
    zero, one, minus = (b.constant(x.type, n) for n in (0, 1, -1))
    none = arith.cmpi(arith.CmpIPredicate.eq, y, zero)
    least = arith.cmpi(arith.CmpIPredicate.eq, x, b.constant(x.type, -(1 << (bits - 1))))
    lost = arith.andi(least, arith.cmpi(arith.CmpIPredicate.eq, y, minus))
    divided = arith.divsi(x, arith.select(arith.ori(none, lost), one, y))
    return arith.select(none, minus, divided)


def multiplied_high(b: Builder, x: ir.Value, y: ir.Value) -> ir.Value:
    """The low 32 bits of `(x * y + 2^30) >> 31`, of i32."""
    if lanes_of(x) == 1:
        wide = arith.muli(*(converted(v, vec(1, "i64")) for v in (x, y)))
        product = arith.addi(wide, b.constant(wide.type, 1 << 30))
        return converted(b.shift_right_signed(product, 31), x.type)
    return high_half(b, halves(b, x), halves(b, y))


def halved(b: Builder, x: ir.Value) -> ir.Value:
    """`multiplied_high` by 2^30: half of x, a half rounded up."""
    one = b.constant(x.type, 1)
    return b.add(b.shift_right_signed(x, 1), b.bit_and(x, one))


def gathered(b: Builder, table: ir.Value, index: ir.Value) -> ir.Value:
    """Elements of memory [1, n] i32, at indices that are in it."""
    address = arith.index_cast(
        ir.IntegerType.get_signless(64), memref.extract_aligned_pointer_as_index(table)
    )
    pointer = ir.Type.parse("!llvm.ptr")
    lanes, i32 = lanes_of(index), ir.IntegerType.get_signless(32)
    many = ir.VectorType.get([lanes], pointer)
    base, dynamic = llvm.inttoptr(pointer, address), ir.DenseI32ArrayAttr.get([-(1 << 31)])
    places = llvm.GEPOp(many, base, [index], dynamic, i32, 0).result
    every, none = b.constant(vec(lanes, "i1"), 1), b.i32(0, lanes)
    return llvm.intr_masked_gather(index.type, places, every, [none], alignment=4)


def stored(element: str) -> str:
    """Truth is kept as bytes."""
    return "i8" if element == "i1" else element


def byte(value: ir.Value) -> ir.Value:
    kind = ir.VectorType(value.type)
    truth = kind.element_type.width == 1
    return arith.extui(vec(lanes_of(value), "i8"), value) if truth else value


def converted(x: ir.Value, kind: ir.VectorType) -> ir.Value:
    old, new = ir.VectorType(x.type).element_type.width, kind.element_type.width
    if old == new:
        return x
    if new > old:
        return (arith.extui if old == 1 else arith.extsi)(kind, x)
    if new == 1:
        nothing = ir.IntegerAttr.get(ir.VectorType(x.type).element_type, 0)
        zero = arith.ConstantOp(x.type, ir.DenseElementsAttr.get_splat(x.type, nothing)).result
        return arith.cmpi(arith.CmpIPredicate.ne, x, zero)
    return arith.trunci(kind, x)


def start(line: Line) -> int:
    """The number that changes no sum, or no extreme."""
    half = 1 << (int(line.element[1:]) - 1)
    return {"reduce_add": 0, "reduce_maximum": -half, "reduce_minimum": half - 1}[line.op]


KINDS = {"reduce_add": "ADD", "reduce_maximum": "MAXSI", "reduce_minimum": "MINSI"}
COMPARED = {"EQ": "eq", "NE": "ne", "LT": "slt", "LE": "sle", "GT": "sgt", "GE": "sge"}
OPS: dict[str, Callable[..., ir.Value]] = {
    "add": arith.addi,
    "subtract": arith.subi,
    "multiply": arith.muli,
    "maximum": arith.maxsi,
    "minimum": arith.minsi,
    "abs": math.absi,
    "and": arith.andi,
    "or": arith.ori,
    "xor": arith.xori,
    "shift_left": arith.shli,
    "shift_right_logical": arith.shrui,
    "shift_right_arithmetic": arith.shrsi,
    "select": arith.select,
}
