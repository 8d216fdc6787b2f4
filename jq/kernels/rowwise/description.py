"""Rows of floats to int8 codes, with a given scale or one per row from the row itself.

    for block of rows in workgroups:
      for row in block:
        range of the row             (dynamic: one pass, 4 vectors at a time)
        scale, inverse, zero point   (a division each)
        codes of the row             (a second pass, from cache)

About 4 operations an element for the range and 5 for the code; bound by memory."""

from dataclasses import dataclass, field, replace

from jq.base.errors import InternalError
from jq.kernels.kernel import Kernel
from jq.kernels.machine.isa import CHAINS
from jq.kernels.schedule.layout import Sequences
from jq.kernels.tensor import TensorType

# Quantization of a row of floats to int8: the definition of `jq.formats.affine`, by vectors.
#
#     static      saturate(round_half_even(x / scale) + zero_point)            scale given
#     symmetric   saturate(round_half_even(x * inv)), inv = 127 / max|x|       from the row
#     asymmetric  saturate(round_half_even(x * inv) + zero), inv = 255 / (max - min)
#
# The range includes 0; a row whose scale would be below 2^-126 has scale 1; NaN becomes the code of
# 0, and a row that holds one has scale NaN.
SMALLEST_NORMAL = 2.0**-126
# Scales that codes are divided by exactly (`jq.kernels.epilogue.functions.divisor`).
SMALLEST_SCALE, LARGEST_SCALE = 2.0**-70, 2.0**100
STATIC, SYMMETRIC, ASYMMETRIC = "static", "symmetric", "asymmetric"


@dataclass(frozen=True)
class RowQuantization:
    """Attributes:
    scheme: `static` (scale f32 [1] and zero point i32 [1] are operands), `symmetric` or
        `asymmetric` (per row).
    narrow: codes in [-127, 127]; the symmetric divisor is then 127, else 127.5.
    unsigned_zero: the zero point is computed for 0..255 and shifted (`uint8`), which rounds
        differently from computing it for -128..127 (`int8`).
    unsigned: codes are stored in their unsigned view (`q + 128`).
    wide: steps on either side of zero where that is no int8 code, for who writes it otherwise.
    measured: the scale that is given is found at run time: it may be any number."""

    scheme: str = SYMMETRIC
    narrow: bool = True
    unsigned_zero: bool = False
    unsigned: bool = False
    wide: int = 0
    measured: bool = False

    def __post_init__(self) -> None:
        if self.scheme not in (STATIC, SYMMETRIC, ASYMMETRIC):
            raise InternalError(f"unknown quantization scheme {self.scheme!r}")

    @property
    def dynamic(self) -> bool:
        return self.scheme != STATIC

    @property
    def low(self) -> int:
        if self.wide:
            return -self.wide
        return -127 if self.narrow and self.scheme != ASYMMETRIC else -128

    @property
    def steps(self) -> float:
        """Codes between the ends of the range that makes the scale."""
        if self.wide:
            return float(self.wide)
        return 255.0 if self.scheme == ASYMMETRIC else (127.0 if self.narrow else 127.5)

    @property
    def operands(self) -> list[TensorType]:
        """The operands of the static scheme, last of a kernel's: scale, zero point."""
        return [] if self.dynamic else [TensorType((1,), "f32"), TensorType((1,), "i32")]

    def results(self, rows: int, columns: int) -> list[TensorType]:
        """Codes, and after them f32 scales and i32 zero points, [rows]."""
        scale = [TensorType((rows,), "f32")] if self.dynamic else []
        zero = [TensorType((rows,), "i32")] if self.scheme == ASYMMETRIC else []
        return [TensorType((rows, columns), "i8"), *scale, *zero]


class Rows(Kernel, shared=True):
    """A kernel over the rows of a matrix [M, K]."""

    m: int
    k: int

    def __post_init__(self) -> None:
        if min(self.m, self.k) < 1:
            raise InternalError(f"empty matrix {self.label}")

    @property
    def label(self) -> str:
        return f"{self.m}x{self.k}"

    @property
    def matrix(self) -> TensorType:
        return TensorType((self.m, self.k), "f32")

    @property
    def operands(self) -> tuple[TensorType, ...]:
        return (self.matrix,)


class RowKernel(Rows, shared=True):
    """A kernel over rows of floats.

    Attributes:
        factors: codes are of the rows with columns multiplied by them, f32 [K].
        sequences: which rows are left out."""

    factors: bool = False
    sequences: Sequences | None = None
    row_operands = (0,)

    @property
    def together(self) -> int:
        """Rows whose chains of dependent operations overlap."""
        return 1

    def by_sequences(self, sequences: Sequences) -> "RowKernel":
        return replace(self, sequences=sequences)


class QuantizeRows(RowKernel):
    """f32 [M, K] (, f32 factors [K]) -> i8 [M, K] (, f32 scale [M]) (, i32 zero point [M]). The
    static scheme has two more operands, its scale f32 [1], in [2^-70, 2^100] unless it is measured,
    and its zero point i32 [1]."""

    scheme: RowQuantization = field(default_factory=RowQuantization)

    @property
    def operands(self) -> tuple[TensorType, ...]:
        factors = [TensorType((self.k,), "f32")] * self.factors
        counts = [self.sequences.operand(self.m)] if self.sequences else []
        return (self.matrix, *factors, *self.scheme.operands, *counts)

    @property
    def results(self) -> tuple[TensorType, ...]:
        return tuple(self.scheme.results(self.m, self.k))


# The smallest and the largest number of every row: what a range of all of a tensor is made of.
#
#     for block of rows in workgroups:
#       for row in block:
#         smallest, largest, NaN where there is one      (one pass, 4 vectors at a time)
#
# 3 operations an element; bound by memory.
class RowRanges(RowKernel):
    """f32 [M, K] -> f32 [M], f32 [M]: NaN where the row holds one."""

    @property
    def results(self) -> tuple[TensorType, ...]:
        return (TensorType((self.m,), "f32"),) * 2


# LayerNorm and RMSNorm over rows, with the quantization of the result in the same pass.
#
#     for block of rows in workgroups:
#       for row in block:            (two at a time, where there are registers)
#         mean                       sum(x) / K                      (LayerNorm)
#         variance                   sum((x - mean)^2) / K
#         y = (x - mean) / sqrt(variance + eps) * gamma + beta       -> stored, range
#         codes of y                 (y is computed again: the same operations, the same bits)
#
# About 12 operations an element, bound by memory. Every sum runs in 4 chains of vectors that are
# joined in a fixed order. With u = 2^-24 the relative error of a sum of squares is below
# (K / 64 + 8) u; the error of y is that, times 1 + |mean| / sqrt(variance), and a few u.
MANY_REGISTERS = 32


class Normalize(RowKernel):
    """f32 [M, K] (, gamma, beta, factors [K]) (, scale, zero point) -> f32, codes, or both.

    Attributes:
        epsilon: added to the variance.
        center: subtract the mean (LayerNorm); else RMSNorm.
        gamma, beta: which of the two operands there are.
        keep: the normalized rows are a result.
        scheme: their codes are results, as `QuantizeRows` has them; None: they are not."""

    epsilon: float = 1e-5
    center: bool = True
    gamma: bool = True
    beta: bool = True
    keep: bool = True
    scheme: RowQuantization | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.keep and self.scheme is None:
            raise InternalError("a normalization without a result")
        if self.factors and self.scheme is None:
            raise InternalError("factors of codes, and no codes")

    @property
    def operands(self) -> tuple[TensorType, ...]:
        columns = [TensorType((self.k,), "f32")] * (self.gamma + self.beta + self.factors)
        given = self.scheme.operands if self.scheme else []
        counts = [self.sequences.operand(self.m)] if self.sequences else []
        return (self.matrix, *columns, *given, *counts)

    @property
    def results(self) -> tuple[TensorType, ...]:
        kinds = [self.matrix] if self.keep else []
        return (*kinds, *(self.scheme.results(self.m, self.k) if self.scheme else []))

    @property
    def together(self) -> int:
        many = self.target.registers >= MANY_REGISTERS and self.target.lanes >= CHAINS
        return 2 if many else 1
