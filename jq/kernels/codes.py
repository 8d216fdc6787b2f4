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
from jq.kernels.packs import pack_bytes
from jq.kernels.values import lanes_of

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class AddCodes(Step):
    """`(round_half_even(y) [clamped] + f32(codes - zero_point) * factor) * unit`.

    Operands: codes by element, factor (a whole number), unit (a power of two), the zero point, and
    two bounds if `bounded`.
    """

    kind: ClassVar[str] = "add_codes"
    unsigned: bool = False
    bounded: bool = False

    @property
    def operands(self) -> tuple[tuple[str, str], ...]:
        bounds = ((SCALAR, "f32"), (SCALAR, "f32")) if self.bounded else ()
        return ((ELEMENT, "i8"), (SCALAR, "f32"), (SCALAR, "f32"), (SCALAR, "i32"), *bounds)

    def apply(self, b: Builder, y: ir.Value, operands: Sequence[ir.Value]) -> ir.Value:
        return self._add(b, b.to_f32(b.round_to_int(y)), operands)  # |y| < 2^30

    def emit(self, b: Builder, isa: Isa, y: ir.Value, operands: Sequence[ir.Value]) -> ir.Value:
        if not isa.rounds:
            return self.apply(b, y, operands)
        whole = b.intrinsic(f"llvm.roundeven.v{lanes_of(y)}f32", y.type, [y])
        return self._add(b, whole, operands)

    def _add(self, b: Builder, y: ir.Value, operands: Sequence[ir.Value]) -> ir.Value:
        codes, factor, unit, zero, *bounds = operands
        if self.bounded:
            y = b.min(b.max(y, bounds[0]), bounds[1])
        wide = (b.extend_unsigned if self.unsigned else b.extend)(codes, "i32")
        shift = b.add(zero, b.i32(128, lanes_of(y))) if self.unsigned else zero
        wide = b.sub(wide, shift)
        return b.mul(b.add(b.mul(b.to_f32(wide), factor), y), unit)  # exact, fused or not

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        stored, factor, unit, zero, *bounds = operands
        codes = (stored.astype(np.int32) & 255) if self.unsigned else stored.astype(np.int32)
        codes = codes - (128 if self.unsigned else 0) - zero
        y = np.rint(y)
        if self.bounded:
            y = np.clip(y, *bounds)
        result: Array = (y + codes.astype(np.float32) * factor) * unit
        return result


@dataclass(frozen=True)
class Codes(Step):
    """`saturate(round_half_even(y) + zero_point)` as i8, |y| < 2^30; the zero point is an operand.

    `low` and `high` bound the code; `unsigned` stores `code + 128`.
    """

    kind: ClassVar[str] = "codes"
    result: ClassVar[str] = "i8"
    packs: ClassVar[bool] = True
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

    def whole(self, b: Builder, y: ir.Value, operands: Sequence[ir.Value]) -> ir.Value:
        return y

    def pack(
        self, b: Builder, isa: Isa, ys: Sequence[ir.Value], operands: Sequence[Sequence[Any]]
    ) -> ir.Value:
        return pack_bytes(
            b, isa, ys, [zero for (zero,) in operands], self.unsigned, (self.low, self.high)
        )

    def reference(self, y: Array, operands: Sequence[Array]) -> Array:
        codes = np.clip(np.rint(y) + operands[0], self.low, self.high).astype(np.int8)
        return codes ^ np.int8(-128) if self.unsigned else codes
