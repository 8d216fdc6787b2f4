"""Steps from int32 sums to int8 codes, as `jq.formats.rescale` defines them.

    Dequantize (the sum times a multiplier), AddCodes (where there is a residual), Codes

Steps stay below 2^30 (the pass that makes them proves it): one instruction rounds them to int32,
and where the processor has saturating packs, four vectors become one of bytes in four more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from iree.compiler import ir

from jq.errors import InternalError
from jq.kernels.builder import Builder
from jq.kernels.epilogue import ELEMENT, SCALAR, Step
from jq.kernels.isa import Isa
from jq.kernels.values import lanes_of, vec

Array = np.ndarray[Any, np.dtype[Any]]
PACKED = 4  # vectors of int32 that fill one of bytes


@dataclass(frozen=True)
class AddCodes(Step):
    """`(round_half_even(y) [clamped] + f32(codes - zero_point) * factor) * unit`.

    Operands: codes by element, factor (a whole number), unit (a power of two), the zero point
    unless `centered` (it is 0 in the view of the codes), and two bounds if `bounded`.
    """

    kind: ClassVar[str] = "add_codes"
    unsigned: bool = False
    centered: bool = False
    bounded: bool = False

    @property
    def operands(self) -> tuple[tuple[str, str], ...]:
        zero = () if self.centered else ((SCALAR, "i32"),)
        bounds = ((SCALAR, "f32"), (SCALAR, "f32")) if self.bounded else ()
        return ((ELEMENT, "i8"), (SCALAR, "f32"), (SCALAR, "f32"), *zero, *bounds)

    def apply(self, b: Builder, y: ir.Value, operands: Sequence[ir.Value]) -> ir.Value:
        codes, factor, unit, *rest = operands
        y = b.round_even(y)
        if self.bounded:
            y = b.min(b.max(y, rest[-2]), rest[-1])
        wide = (b.extend_unsigned if self.unsigned else b.extend)(codes, "i32")
        if not self.centered:
            shift = b.add(rest[0], b.i32(128, lanes_of(y))) if self.unsigned else rest[0]
            wide = b.sub(wide, shift)
        return b.mul(b.add(b.mul(b.to_f32(wide), factor), y), unit)  # exact, fused or not

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        stored, factor, unit, *rest = operands
        codes = (stored.astype(np.int32) & 255) if self.unsigned else stored.astype(np.int32)
        if not self.centered:
            codes = codes - (128 if self.unsigned else 0) - rest[0]
        y = np.rint(y)
        if self.bounded:
            y = np.clip(y, rest[-2], rest[-1])
        result: Array = (y + codes.astype(np.float32) * factor) * unit
        return result


@dataclass(frozen=True)
class Codes(Step):
    """`saturate(round_half_even(y) + zero_point)` as i8, |y| < 2^30; the zero point is an operand.

    `low` and `high` bound the code; `unsigned` stores `code + 128`.
    """

    kind: ClassVar[str] = "codes"
    result: ClassVar[str] = "i8"
    low: int = -128
    high: int = 127
    unsigned: bool = False

    def __post_init__(self) -> None:
        if not -128 <= self.low <= self.high <= 127:
            raise InternalError(f"codes {self.low}..{self.high} do not fit int8")

    @property
    def operands(self) -> tuple[tuple[str, str], ...]:
        return ((SCALAR, "i32"),)

    @property
    def shift(self) -> int:
        """What is stored is code + shift."""
        return 128 if self.unsigned else 0

    def apply(self, b: Builder, y: ir.Value, operands: Sequence[ir.Value]) -> ir.Value:
        lanes = lanes_of(y)
        codes = b.add(b.round_to_int(y), operands[0])
        bounded = b.min_int(b.max_int(codes, b.i32(self.low, lanes)), b.i32(self.high, lanes))
        stored = b.add(bounded, b.i32(self.shift, lanes)) if self.shift else bounded
        return b.truncate(stored, "i8")

    def pack(
        self, b: Builder, isa: Isa, ys: Sequence[ir.Value], operands: Sequence[ir.Value]
    ) -> ir.Value:
        """The codes of four vectors behind each other, by saturating packs (`isa.packs`)."""
        assert isa.packs is not None
        lanes = isa.lanes
        words, byte = vec(2 * lanes, "i16"), vec(4 * lanes, "i8")
        half = b.truncate(b.add(operands[0], b.i32(self.shift, lanes)), "i16")
        zero = b.concat(half, half)
        low, high = (b.constant(words, v + self.shift) for v in (self.low, self.high))
        pairs = []
        for first, second in ((ys[0], ys[1]), (ys[2], ys[3])):
            whole = [b.round_to_int(first), b.round_to_int(second)]
            pair = b.intrinsic(isa.packs.words, words, whole)
            pair = b.intrinsic(f"llvm.sadd.sat.v{2 * lanes}i16", words, [pair, zero])
            pair = b.max_int(pair, low) if self.low > -128 else pair
            pairs.append(b.min_int(pair, high) if self.high < 127 else pair)
        name = isa.packs.unsigned if self.unsigned else isa.packs.signed
        packed = b.intrinsic(name, byte, pairs)
        return _by_operand(b, packed, lanes)

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        codes = np.clip(np.rint(y) + operands[0], self.low, self.high).astype(np.int8)
        return codes ^ np.int8(-128) if self.unsigned else codes


def _by_operand(b: Builder, packed: ir.Value, lanes: int) -> ir.Value:
    """Packs work in parts of 128 bits: words of 4 bytes part by part, operand by operand inside.

    Puts all words of the first operand first.
    """
    parts = lanes // 4
    if parts == 1:
        return packed
    words = b.bitcast(packed, vec(lanes, "i32"))
    order = [part * PACKED + operand for operand in range(PACKED) for part in range(parts)]
    return b.bitcast(b.shuffle(words, words, order), vec(4 * lanes, "i8"))
