"""The rescale of integer-only devices on vectors: products of 64 bits from pairs of 32.

A processor multiplies the even lanes of a register to 64 bits at once; the odd ones follow in
another multiplication, and both halves are shifted so that their results blend."""

from collections.abc import Sequence
from typing import Any

from iree.compiler import ir

from jq.formats.requantize import INT32
from jq.kernels.emit import Builder, Values, lanes_of, vec
from jq.kernels.epilogue.code_steps import Rescale, WideRescale
from jq.kernels.epilogue.emitters import Emitter, emits


@emits(Rescale, WideRescale)
class RescaleEmitter(Emitter[Rescale]):
    def prepare(self, b: Builder, operands: Values) -> Sequence[Any]:
        mantissa, *shifts, zero = operands
        lanes = lanes_of(zero)
        low, high = (b.sub(b.i32(bound, lanes), zero) for bound in (self.step.low, self.step.high))
        offset = b.add(zero, b.i32(self.step.shift, lanes))
        left = shifts[:-1]
        tops = [b.shift_right_signed(b.i32(INT32.max, lanes), by) for by in left]
        ends = [*halves(b, mantissa), low, high, offset, *tops, *left]
        if self.step.rounding == "double":
            one = b.i32(1, lanes)
            mask = b.sub(b.shift_left(one, shifts[-1]), one)
            return [*ends, shifts[-1], mask, b.shift_right_signed(mask, 1)]
        by = b.add(b.i32(31, lanes), shifts[-1])
        by = b.min_int(b.sub(by, left[0]) if left else by, b.i32(63, lanes))
        return [*ends, *halves(b, by)]

    def apply(self, b: Builder, y: ir.Value, operands: Sequence[Any]) -> ir.Value:
        even, odd, low, high, offset, *rest = operands
        if self.step.left:
            top, by, *rest = rest
            y = self._left(b, y, top, by)
        rescale = self._double if self.step.rounding == "double" else self._single
        steps = b.min_int(b.max_int(rescale(b, y, (even, odd), rest), low), high)
        return b.truncate(b.add(steps, offset), self.step.result)

    def _left(self, b: Builder, y: ir.Value, top: ir.Value, by: ir.Value) -> ir.Value:
        """`y << by` saturated; or, for a rounding that shifts once, y such that it would be."""
        lanes = lanes_of(y)
        inside = b.min_int(b.max_int(y, b.sub(b.i32(-1, lanes), top)), top)
        if self.step.rounding == "single":
            return inside
        return b.select_above(y, top, b.i32(INT32.max, lanes), b.shift_left(inside, by))

    def _double(self, b: Builder, y: ir.Value, factors: Values, rest: Values) -> ir.Value:
        """High half of twice the product, rounded; then a right shift with ties away from zero."""
        by, mask, half = rest
        product = high_half(b, halves(b, y), factors)
        negative = b.shift_right_signed(product, 31)
        above = b.sub(b.sub(half, negative), b.bit_and(product, mask))  # negative: rounds up
        return b.sub(b.shift_right_signed(product, by), b.shift_right_signed(above, 31))

    def _single(self, b: Builder, y: ir.Value, factors: Values, rest: Values) -> ir.Value:
        """`(y * mantissa + 2^(s - 1)) >> s`."""
        one = b.constant(factors[0].type, 1)
        even, odd = (
            b.shift_right_signed(b.add(b.mul(part, factor), b.shift_left(one, b.sub(by, one))), by)
            for part, factor, by in zip(halves(b, y), factors, rest, strict=True)
        )
        return blend(b, even, b.shift_left(odd, 32))


def high_half(b: Builder, parts: Values, factors: Values) -> ir.Value:
    """The low 32 bits of `(x * y + 2^30) >> 31`, of i32 whose `halves` are given."""
    rounding = b.constant(factors[0].type, 1 << 30)
    even, odd = (
        b.add(b.mul(part, factor), rounding) for part, factor in zip(parts, factors, strict=True)
    )
    return blend(b, b.shift_right(even, 31), b.shift_left(odd, 1))


def halves(b: Builder, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The even and the odd lanes of i32, as i64."""
    wide = b.bitcast(x, vec(lanes_of(x) // 2, "i64"))
    return b.shift_right_signed(b.shift_left(wide, 32), 32), b.shift_right_signed(wide, 32)


def blend(b: Builder, even: ir.Value, odd: ir.Value) -> ir.Value:
    """The low words of `even` and the high words of `odd`, in turns."""
    lanes = 2 * lanes_of(even)
    low, high = (b.bitcast(x, vec(lanes, "i32")) for x in (even, odd))
    return b.shuffle(low, high, [i + lanes * (i % 2) for i in range(lanes)])
