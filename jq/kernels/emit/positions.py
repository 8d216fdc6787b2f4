"""Arithmetic of positions in tensors, with the largest value that each can have."""

from iree.compiler import ir
from iree.compiler.dialects import arith, vector

from jq.kernels.emit.arithmetic import Arithmetic
from jq.kernels.emit.values import Index, Position, element, high, vec


class Positions(Arithmetic):
    """Emits index arithmetic; what is known while building is folded."""

    def index(self, value: Index) -> ir.Value:
        return self.constant(ir.IndexType.get(), value) if isinstance(value, int) else value.value

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
        if by in (0, 1):
            return value if by == 1 else 0
        return Position(arith.muli(value.value, self.index(by)), value.high * by)

    def divided(self, value: Index, by: int) -> Index:
        """value // by."""
        if isinstance(value, int):
            return value // by
        if by == 1 or value.high < by:
            return value if by == 1 else 0
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

    def part(self, number: Index, size: int, whole: int) -> Index:
        """The first of the `size` elements of a part; the last part ends where the whole does."""
        return self.at_most(self.scaled(number, size), max(0, whole - size))

    def smaller(self, a: Index, b: Index) -> Index:
        return Position(arith.minui(self.index(a), self.index(b)), min(high(a), high(b)))

    def larger(self, a: Index, b: Index) -> Index:
        return Position(arith.maxui(self.index(a), self.index(b)), max(high(a), high(b)))

    def above(self, value: Index, low: Index) -> Index:
        """max(value - low, 0)."""
        if isinstance(value, int) and isinstance(low, int):
            return max(value - low, 0)
        if low == 0:
            return value
        most, bound = arith.maxui(self.index(value), self.index(low)), high(value)
        least = low if isinstance(low, int) else 0
        return Position(arith.subi(most, self.index(low)), max(bound - least, 0))

    def within(self, value: Index, low: int, size: int) -> tuple[Index, ir.Value | bool]:
        """`value - low` held to 0 .. size - 1, and whether it lies there by itself."""
        if isinstance(value, int):
            return min(max(value - low, 0), size - 1), low <= value < low + size
        if low == 0 and value.high < size:
            return value, True
        above = arith.maxui(value.value, self.index(low)) if low else value.value
        moved = Position(arith.subi(above, self.index(low)), max(value.high - low, 0))
        distance = arith.subi(value.value, self.index(low))  # wraps below `low`
        inside = arith.cmpi(arith.CmpIPredicate.ult, distance, self.index(size))
        return self.at_most(moved, size - 1), inside

    def number(self, value: Index, lanes: int) -> ir.Value:
        """An index as int32 in every lane."""
        if isinstance(value, int):
            return self.i32(value, lanes)
        scalar = arith.index_cast(element("i32"), value.value)
        return vector.broadcast(vec(lanes, "i32"), scalar)

    def select_index(self, condition: ir.Value, value: Index, otherwise: ir.Value) -> ir.Value:
        """`condition ? value : otherwise`, of indices."""
        return arith.select(condition, self.index(value), otherwise)

    def chosen(self, condition: ir.Value | bool, name: str, yes: int, no: int) -> ir.Value:
        """An integer scalar of bits: `condition ? yes : no`."""
        kind = element(name)
        width = ir.IntegerType(kind).width
        signed = [v - (1 << width) if v >> (width - 1) else v for v in (yes, no)]
        first, second = (self.constant(kind, v) for v in signed)
        if isinstance(condition, bool):
            return first if condition else second
        return arith.select(condition, first, second)
