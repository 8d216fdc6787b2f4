"""Emission of an epilogue's steps, with what an instruction set has for each.

One instruction rounds numbers below 2^30 to int32, and where the processor has saturating packs,
four vectors become one of bytes in four more."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from iree.compiler import ir
from iree.compiler.dialects import arith

from jq.base.errors import InternalError
from jq.kernels.emit import Builder, Values, lanes_of, vec
from jq.kernels.epilogue import code_steps, functions, steps
from jq.kernels.epilogue.step import Step
from jq.kernels.machine.dot import halves, pack_bytes
from jq.kernels.machine.isa import Isa

S = TypeVar("S", bound=Step)


class Emitter(Generic[S]):
    """Emits one step."""

    def __init__(self, step: S) -> None:
        self.step = step

    def prepare(self, b: Builder, operands: Values) -> Sequence[Any]:
        """Emits once, from operands that do not depend on the row, the arguments of `apply`."""
        return operands

    def apply(self, b: Builder, y: ir.Value, operands: Sequence[Any]) -> ir.Value:
        """The step on one vector; operands are vectors of the same lanes, prepared."""
        raise InternalError(f"epilogue step {self.step.kind!r} has no body")

    def emit(self, b: Builder, isa: Isa, y: ir.Value, operands: Sequence[Any]) -> ir.Value:
        """`apply` with what the instruction set has for it; `y` may be several registers."""
        return self.apply(b, y, operands)

    def whole(self, b: Builder, y: ir.Value, operands: Sequence[Any]) -> ir.Value:
        """The first part of a step that `packs`: numbers that are rounded to codes, in f32."""
        raise InternalError(f"epilogue step {self.step.kind!r} makes no codes")

    @property
    def has_near(self) -> bool:
        return False

    def near(self, b: Builder, y: ir.Value, operands: Sequence[Any]) -> ir.Value:
        """`whole` in fewer operations, for whoever checks `functions.doubt`, if it `has_near`: then
        its first operand is a `Divisor`."""
        divided: functions.Divisor = operands[0]
        return divided.near(b, y)

    def after(self, b: Builder, isa: Isa, near: ir.Value, operands: Sequence[Any]) -> ir.Value:
        """The step's result from what `near` gave, where other steps follow."""
        raise InternalError(f"epilogue step {self.step.kind!r} has no shorter form")

    def pack(self, b: Builder, isa: Isa, ys: Values, operands: Sequence[Sequence[Any]]) -> ir.Value:
        """Second part: codes of four such vectors side by side (`isa.packs`), by their operands."""
        raise InternalError(f"epilogue step {self.step.kind!r} makes no codes")


_EMITTERS: dict[type[Step], type[Emitter[Any]]] = {}


def emits(*kinds: type[Step]) -> Callable[[type[Emitter[Any]]], type[Emitter[Any]]]:
    """Registers the emitter of some kinds of steps."""

    def register(cls: type[Emitter[Any]]) -> type[Emitter[Any]]:
        _EMITTERS.update(dict.fromkeys(kinds, cls))
        return cls

    return register


def emitter(step: Step) -> Emitter[Any]:
    return _EMITTERS[type(step)](step)


@emits(steps.Dequantize)
class DequantizeEmitter(Emitter[steps.Dequantize]):
    def apply(self, b: Builder, y: ir.Value, operands: Values) -> ir.Value:
        scale = b.mul(operands[1], operands[0]) if self.step.per_row else operands[0]
        return b.mul(b.to_f32(y), scale)


@emits(steps.JoinDigits)
class JoinDigitsEmitter(Emitter[steps.JoinDigits]):
    def apply(self, b: Builder, y: ir.Value, operands: Values) -> ir.Value:
        *scales, high = operands
        scale = b.mul(scales[1], scales[0]) if self.step.per_row else scales[0]
        if self.step.small:  # what the upper part loses above 32 bits the sum has not
            return b.mul(b.to_f32(b.add(b.shift_left(high, 8), y)), scale)
        wide = vec(lanes_of(y), "f64")  # which holds the sum as it is
        low, upper = (arith.sitofp(wide, x) for x in (y, high))
        total = b.add(b.mul(upper, b.constant(wide, 256.0)), low)
        return b.mul(b.truncate(total, "f32"), scale)


# Steps that are one function of a value and their operands.
_FUNCTIONS: dict[type[Step], Callable[..., ir.Value]] = {
    steps.ColumnScale: lambda b, y, factor: b.mul(y, factor),
    steps.Bias: lambda b, y, bias: b.add(b.rounded(y), bias),
    steps.Residual: lambda b, y, residual: b.add(b.rounded(y), residual),
    steps.HalfResidual: lambda b, y, bits: b.add(b.rounded(y), b.from_halves(bits)),
    steps.Scale: lambda b, y, column, row: b.mul(y, b.mul(row, column)),
    steps.ZeroPoint: lambda b, y, total, zero: b.sub(b.rounded(y), b.rounded(b.mul(zero, total))),
    steps.Silu: functions.silu,
}


@emits(*_FUNCTIONS)
class FunctionEmitter(Emitter[Step]):
    def apply(self, b: Builder, y: ir.Value, operands: Values) -> ir.Value:
        return _FUNCTIONS[type(self.step)](b, y, *operands)


@emits(steps.QuantizedResidual, steps.WideResidual)
class QuantizedResidualEmitter(Emitter[steps.QuantizedResidual]):
    def apply(self, b: Builder, y: ir.Value, operands: Values) -> ir.Value:
        codes, scale, zero = operands
        wide = centered(b, codes, zero, self.step.unsigned)
        return b.add(b.rounded(y), b.rounded(b.mul(b.to_f32(wide), scale)))


def centered(b: Builder, codes: ir.Value, zero: ir.Value, unsigned: bool) -> ir.Value:
    """Codes minus their zero point as i32, from either view."""
    wide = (b.extend_unsigned if unsigned else b.extend)(codes, "i32")
    return b.sub(wide, b.add(zero, b.i32(128, lanes_of(wide))) if unsigned else zero)


@emits(steps.Clamp)
class ClampEmitter(Emitter[steps.Clamp]):
    def apply(self, b: Builder, y: ir.Value, operands: Values) -> ir.Value:
        if self.step.low is not None:
            y = b.at_least(y, b.f32(self.step.low, lanes_of(y)))
        if self.step.high is not None:
            y = b.min(b.f32(self.step.high, lanes_of(y)), y)  # NaN stays
        return y


@emits(steps.RoundToHalves)
class RoundToHalvesEmitter(Emitter[steps.RoundToHalves]):
    def emit(self, b: Builder, isa: Isa, y: ir.Value, operands: Sequence[Any]) -> ir.Value:
        parts = b.split(y, isa.lanes)
        pairs = [(parts[i : i + 2] * 2)[:2] for i in range(0, len(parts), 2)]
        bits = b.join([halves(b, isa, pair) for pair in pairs])
        if self.step.ordered:  # NaN has a sign
            bits = arith.andi(bits, b.constant(bits.type, 0x7FFF))
        return b.shuffle(bits, bits, list(range(lanes_of(y))))


@emits(steps.Gelu)
class GeluEmitter(Emitter[steps.Gelu]):
    def emit(self, b: Builder, isa: Isa, y: ir.Value, operands: Sequence[Any]) -> ir.Value:
        return (functions.gelu_for_codes if self.step.codes else functions.gelu)(
            b, isa, y, self.step.approximate
        )


@emits(code_steps.Quantize, code_steps.WideQuantize)
class QuantizeEmitter(Emitter[code_steps.Quantize]):
    def prepare(self, b: Builder, operands: Values) -> Sequence[Any]:
        lanes, zero = lanes_of(operands[-1]), operands[-1]
        as_float = b.to_f32(zero)
        bounds = (self.step.low, self.step.high)
        low, high = (b.sub(b.f32(bound, lanes), as_float) for bound in bounds)
        ends = (functions.divisor(b, operands[0], low, high),) if self.step.divide else (low, high)
        return (*ends, zero)

    def apply(self, b: Builder, y: ir.Value, operands: Sequence[Any]) -> ir.Value:
        return functions.to_codes(
            b, self.whole(b, y, operands), operands[-1], self.step.shift, self.step.result
        )

    def whole(self, b: Builder, y: ir.Value, operands: Sequence[Any]) -> ir.Value:
        if self.step.divide:
            divided: functions.Divisor = operands[0]
            return divided.steps(b, y) if self.step.exact else divided.near(b, y)
        low, high, _ = operands
        return b.min(b.max(b.zero_if_nan(y), low), high)

    @property
    def has_near(self) -> bool:
        return self.step.divide and self.step.exact and self.step.bits == 8

    def pack(self, b: Builder, isa: Isa, ys: Values, operands: Sequence[Sequence[Any]]) -> ir.Value:
        return pack_bytes(b, isa, ys, [prepared[-1] for prepared in operands], self.step.unsigned)


@emits(steps.FakeQuantize)
class FakeQuantizeEmitter(Emitter[steps.FakeQuantize]):
    def prepare(self, b: Builder, operands: Values) -> Sequence[Any]:
        scale, zero, decoded = operands
        ends = (b.f32(bound, lanes_of(zero)) for bound in (self.step.low, self.step.high))
        low, high = (b.sub(end, b.to_f32(zero)) for end in ends)
        return functions.divisor(b, scale, low, high), decoded

    def emit(self, b: Builder, isa: Isa, y: ir.Value, operands: Sequence[Any]) -> ir.Value:
        divided: functions.Divisor = operands[0]
        quotient = divided.steps(b, y) if self.step.exact else divided.near(b, y)
        return self.after(b, isa, quotient, operands)

    @property
    def has_near(self) -> bool:
        return self.step.exact

    def after(self, b: Builder, isa: Isa, near: ir.Value, operands: Sequence[Any]) -> ir.Value:
        if isa.rounds:
            return b.mul(b.round_to_whole(near), operands[1])
        return b.mul(functions.round_small(b, b.rounded(near)), operands[1])


@emits(code_steps.AddCodes)
class AddCodesEmitter(Emitter[code_steps.AddCodes]):
    def emit(self, b: Builder, isa: Isa, y: ir.Value, operands: Values) -> ir.Value:
        # |y| < 2^30
        y = b.round_to_whole(y, isa.rounds)
        codes, factor, unit, zero, *more = operands
        if self.step.bounded:
            y = b.min(b.max(y, more[0]), more[1])
        if self.step.gained:
            y = b.mul(y, more[-1])
        wide = centered(b, codes, zero, self.step.unsigned)
        return b.mul(b.add(b.mul(b.to_f32(wide), factor), y), unit)  # exact, fused or not


@emits(code_steps.RoundToCodes)
class RoundToCodesEmitter(Emitter[code_steps.RoundToCodes]):
    def apply(self, b: Builder, y: ir.Value, operands: Values) -> ir.Value:
        lanes = lanes_of(y)
        codes = b.add(b.round_to_int(y), operands[0])
        codes = b.max_int(codes, b.i32(self.step.low, lanes))
        codes = b.min_int(codes, b.i32(self.step.high, lanes))
        codes = b.add(codes, b.i32(self.step.shift, lanes)) if self.step.shift else codes
        return b.truncate(codes, "i8")

    def whole(self, b: Builder, y: ir.Value, operands: Values) -> ir.Value:
        return y

    def pack(self, b: Builder, isa: Isa, ys: Values, operands: Sequence[Sequence[Any]]) -> ir.Value:
        zeros, bounds = [zero for (zero,) in operands], (self.step.low, self.step.high)
        return pack_bytes(b, isa, ys, zeros, self.step.unsigned, bounds)
