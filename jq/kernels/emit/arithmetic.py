"""Constants, lanes and arithmetic on vectors."""

from collections.abc import Callable, Sequence
from typing import Any

from iree.compiler import ir
from iree.compiler.dialects import arith, llvm, math, vector

from jq.kernels.emit.values import Values, attribute, is_float, lanes_of, vec


def _either(real: Callable[..., ir.Value], integer: Callable[..., ir.Value]) -> Any:
    def apply(self: "Arithmetic", a: ir.Value, b: ir.Value) -> ir.Value:
        return (real if is_float(a) else integer)(a, b)

    return apply


class Arithmetic:
    """Emits operations on values at the current insertion point of one dispatch body."""

    def __init__(self, entry: ir.Block) -> None:
        self._entry = entry
        self._constants: dict[tuple[str, str], ir.Value] = {}
        self._assembly: set[str] = set()

    # Constants: one op for each type and value, at the start of the body

    def constant(self, kind: ir.Type, value: float) -> ir.Value:
        """A scalar, or every lane of a vector."""
        key = (str(kind), repr(value))  # -0.0 equals 0.0
        if key not in self._constants:
            scalar = kind.element_type if isinstance(kind, ir.VectorType) else kind
            attr = attribute(scalar, value)
            if isinstance(kind, ir.VectorType):
                attr = ir.DenseElementsAttr.get_splat(kind, attr)
            with ir.InsertionPoint.at_block_begin(self._entry):
                self._constants[key] = arith.ConstantOp(kind, attr).result
        return self._constants[key]

    def f32(self, value: float, lanes: int) -> ir.Value:
        return self.constant(vec(lanes, "f32"), value)

    def i32(self, value: int, lanes: int) -> ir.Value:
        return self.constant(vec(lanes, "i32"), value)

    def shuffle(self, a: ir.Value, b: ir.Value, lanes: Sequence[int]) -> ir.Value:
        return vector.ShuffleOp(a, b, list(lanes)).result

    def concat(self, a: ir.Value, b: ir.Value) -> ir.Value:
        return self.shuffle(a, b, list(range(lanes_of(a) + lanes_of(b))))

    def join(self, parts: Values) -> ir.Value:
        """Vectors one after the other; their number is a power of two."""
        joined = list(parts)
        while len(joined) > 1:
            joined = [self.concat(x, y) for x, y in zip(joined[::2], joined[1::2], strict=True)]
        return joined[0]

    def split(self, value: ir.Value, lanes: int) -> list[ir.Value]:
        """Takes apart what `join` put together."""
        count = lanes_of(value)
        if count == lanes:
            return [value]
        return [
            self.shuffle(value, value, list(range(i, i + lanes))) for i in range(0, count, lanes)
        ]

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

    # Arithmetic: integer or float by the operands' type, or of one kind alone

    add = _either(arith.addf, arith.addi)
    sub = _either(arith.subf, arith.subi)
    mul = _either(arith.mulf, arith.muli)
    div, fma, sqrt, abs = map(staticmethod, (arith.divf, math.fma, math.sqrt, math.absf))
    max_int, min_int = map(staticmethod, (arith.maxsi, arith.minsi))
    bit_and, bit_or, xor = map(staticmethod, (arith.andi, arith.ori, arith.xori))

    def rounded(self, a: ir.Value) -> ir.Value:
        """`a`, rounded as it stands: keeps a product from being contracted into a following sum."""
        kind = ir.VectorType(a.type)
        return self.intrinsic(f"llvm.arithmetic.fence.v{kind.shape[0]}f32", kind, [a])

    def max(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """`a > b ? a : b`: one instruction on every target, and b where either is NaN."""
        return arith.select(arith.cmpf(arith.CmpFPredicate.OGT, a, b), a, b)

    def min(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """`a < b ? a : b`; likewise."""
        return arith.select(arith.cmpf(arith.CmpFPredicate.OLT, a, b), a, b)

    def at_least(self, a: ir.Value, low: ir.Value) -> ir.Value:
        """`a <= low ? low : a`: NaN stays, and no -0 is left above a bound of 0."""
        return arith.select(arith.cmpf(arith.CmpFPredicate.UGT, a, low), a, low)

    def round_to_int(self, a: ir.Value) -> ir.Value:
        """The nearest i32, half to even; |a| < 2^31."""
        lanes = lanes_of(a)
        return self.intrinsic(f"llvm.lrint.v{lanes}i32.v{lanes}f32", vec(lanes, "i32"), [a])

    def round_to_whole(self, a: ir.Value, rounds: bool = True) -> ir.Value:
        """The nearest whole f32, half to even; |a| < 2^31 where the instruction set has no such
        instruction (`rounds`)."""
        if not rounds:
            return self.to_f32(self.round_to_int(a))
        return self.intrinsic(f"llvm.roundeven.v{lanes_of(a)}f32", a.type, [a])

    def select_equal(self, x: ir.Value, y: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """`x == y ? a : b` on floats; NaN equals nothing."""
        return arith.select(arith.cmpf(arith.CmpFPredicate.OEQ, x, y), a, b)

    def select_above(self, x: ir.Value, y: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """`x > y ? a : b` on signed integers."""
        return arith.select(arith.cmpi(arith.CmpIPredicate.sgt, x, y), a, b)

    def any_above(self, a: ir.Value, bound: int) -> ir.Value:
        """True if an integer lane is above the bound, as i1."""
        return self._any(arith.cmpi(arith.CmpIPredicate.sgt, a, self.constant(a.type, bound)))

    def any_not_below(self, a: ir.Value, bound: ir.Value) -> ir.Value:
        """True if a lane is not below its bound; NaN is not."""
        return self._any(arith.cmpf(arith.CmpFPredicate.UGE, a, bound))

    def _any(self, lanes: ir.Value) -> ir.Value:
        kind = ir.IntegerType.get_signless(1)
        return vector.ReductionOp(kind, vector.CombiningKind.OR, lanes).result

    def zero_if_nan(self, a: ir.Value) -> ir.Value:
        return self.select_equal(a, a, a, self.f32(0.0, lanes_of(a)))

    def to_f32(self, a: ir.Value) -> ir.Value:
        return arith.sitofp(vec(lanes_of(a), "f32"), a)

    def reinterpret(self, a: ir.Value, name: str) -> ir.Value:
        """The same bits as another element type of the same width."""
        return arith.bitcast(vec(lanes_of(a), name), a)

    def from_halves(self, bits: ir.Value) -> ir.Value:
        """f32 of bf16 in i16."""
        wide = self.shift_left(self.extend_unsigned(bits, "i32"), 16)
        return self.reinterpret(wide, "f32")

    def widen(self, a: ir.Value) -> ir.Value:
        """f16 as f32; f32 as it is."""
        kind = vec(lanes_of(a), "f32")
        return a if a.type == kind else arith.extf(kind, a)

    def extend(self, a: ir.Value, name: str) -> ir.Value:
        """Sign extension; of a `vector.bitcast` by shifts, since IREE 3.13 turns `extsi` of one
        into masks and logical shifts, which loses the sign."""
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
        return arith.truncf(kind, a) if is_float(a) else arith.trunci(kind, a)

    def shift_left(self, a: ir.Value, by: int | ir.Value) -> ir.Value:
        return arith.shli(a, self._amount(a, by))

    def shift_right(self, a: ir.Value, by: int | ir.Value) -> ir.Value:
        """Logical: zeros come in."""
        return arith.shrui(a, self._amount(a, by))

    def shift_right_signed(self, a: ir.Value, by: int | ir.Value) -> ir.Value:
        """Arithmetic: the sign comes in."""
        return arith.shrsi(a, self._amount(a, by))

    def _amount(self, a: ir.Value, by: int | ir.Value) -> ir.Value:
        return self.constant(a.type, by) if isinstance(by, int) else by

    def intrinsic(self, name: str, result: ir.Type, args: Values) -> ir.Value:
        """A call of an LLVM intrinsic; the target must have it (the compiler aborts otherwise)."""
        return llvm.CallIntrinsicOp(result, name, list(args), [], []).results[0]

    def at_start(self, assembly: str, clobbers: str) -> None:
        """Assembly that the body begins with, once, whoever needs it."""
        if assembly not in self._assembly:
            self._assembly.add(assembly)
            with ir.InsertionPoint.at_block_begin(self._entry):
                llvm.inline_asm(None, [], assembly, clobbers, has_side_effects=True)
