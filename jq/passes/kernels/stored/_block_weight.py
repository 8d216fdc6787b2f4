"""Weights as `Gemv` takes them: integers, and scales by block of what is summed or by column."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jq.base.errors import FormatError
from jq.formats import Encoding, get_format
from jq.ir import Program, ir, known_parts
from jq.ir.ops.movement import WHOLE
from jq.kernels import Gemv
from jq.kernels.gemv.description import Scale
from jq.kernels.gemv.layout import PLANES
from jq.passes.kernels._kernel import NoKernel


@dataclass(frozen=True)
class BlockWeight:
    """Attributes:
    codes: int8 [K, N].
    scale, minimum: f32 [blocks, N], or pairs of i8 integers and their factors [blocks / outer, N];
        `value = code * scale + minimum`.
    zero: int8 [blocks, N], from 0: `value = (code - zero) * scale`.
    factor: what all values are multiplied by, besides.
    stack: how many weights the columns are of, one after the other; 0 for one.
    block: codes along K that share a scale.
    outer: blocks that share a factor; 0 where scales are numbers."""

    codes: np.ndarray
    scale: Scale
    minimum: Scale | None
    block: int
    outer: int = 0
    zero: np.ndarray | None = None
    factor: float = 1.0
    stack: int = 0

    @staticmethod
    def of(
        program: Program,
        enc: Encoding,
        parts: dict[str, ir.Value],
        contracted: Sequence[int],
        free: Sequence[int],
        apart: bool = False,
    ) -> "BlockWeight":
        """K runs over the axes `contracted`, the one that has blocks last; N over `free`. `apart`:
        the scale of a whole tensor becomes the `factor`: those of its blocks are narrow."""
        if (stored := known_parts(program, parts)) is None:
            raise NoKernel("the right operand is no constant weight")
        fmt, factor = get_format(enc.format), 1.0
        if apart and (tensor := stored.get(WHOLE)) is not None:
            factor, stored[WHOLE] = float(tensor.reshape(())), np.ones_like(tensor)
        try:
            codes, scale, minimum, zero = fmt.block_levels(stored, enc)
        except FormatError as reason:
            raise NoKernel(reason.message) from reason
        *lead, axis = contracted
        rows = math.prod(enc.shape[a] for a in lead)
        length = enc.shape[axis]

        def matrix(values: Any) -> np.ndarray:
            """A grid with an entry for every index of all axes but the last contracted one."""
            values = np.asarray(values)
            count = values.shape[axis]
            wide = [count if a == axis else n for a, n in enumerate(enc.shape)]
            order = [*contracted, *free]
            return np.broadcast_to(values, wide).transpose(order).reshape(rows * count, -1)

        def level(values: Any) -> Any:
            return tuple(map(matrix, values)) if isinstance(values, tuple) else matrix(values)

        first = scale[0] if isinstance(scale, tuple) else scale
        counts = [np.shape(first)[a] for a in contracted]
        if any(n > 1 for n in counts[:-1]):
            raise NoKernel("scales vary along several contracted axes")
        if any(np.shape(first)[a] not in (1, enc.shape[a]) for a in free):
            raise NoKernel("columns of the weight share scales")
        blocks = counts[-1]
        size = fmt.run_along(enc, [axis]) or length
        if rows > 1 and blocks > 1 and length % size:
            raise NoKernel(f"blocks of {size} do not divide the contracted axis")
        if blocks == 1 and minimum is None and zero is None:
            return BlockWeight(matrix(codes), matrix(scale)[:1] * factor, None, rows * length)
        outer = blocks // np.shape(scale[1])[axis] if isinstance(scale, tuple) else 0
        low = None if minimum is None else level(minimum)
        points = None if zero is None else matrix(zero)
        return BlockWeight(matrix(codes), level(scale), low, size, outer, points, factor)

    @property
    def by_column(self) -> bool:
        """One scale a column, and no minimum."""
        plain = self.minimum is None and self.zero is None and not self.outer
        return plain and len(self.scale) == 1

    def cut(self, block: int) -> "BlockWeight":
        """The same in blocks of `block`, which divides those it has."""
        if self.by_column or block == self.block:
            return replace(self, block=block)
        times = self.block // block
        if self.outer or self.block % block:
            raise NoKernel(f"blocks of {block} of activations meet blocks of {self.block}")
        blocks = math.ceil(len(self.codes) / block)

        def repeated(values: Any) -> Any:
            return None if values is None else np.repeat(values, times, axis=0)[:blocks]

        given = {n: repeated(getattr(self, n)) for n in ("scale", "minimum", "zero")}
        return replace(self, block=block, **given)

    @property
    def bits(self) -> int:
        """The fewest in which the codes can be kept."""
        low, high = int(self.codes.min(initial=0)), int(self.codes.max(initial=0))
        from_zero = self.minimum is not None or self.zero is not None
        for bits in PLANES:
            start = 0 if from_zero else -1 << (bits - 1)
            whole = self.block % Gemv.least_block(bits) == 0 and not (from_zero and bits == 8)
            if whole and start <= low and high < start + (1 << bits):
                return bits
        raise NoKernel(f"no kernel for blocks of {self.block} of codes from {low} to {high}")

    @property
    def scale_type(self) -> str:
        """f16 where that loses nothing."""
        if self.outer or self.by_column:
            return "i8" if self.outer else "column"
        given = [np.asarray(s) for s in (self.scale, self.minimum) if s is not None]
        with np.errstate(over="ignore"):
            half = all((s.astype(np.float16).astype(s.dtype) == s).all() for s in given)
        return "f16" if half else "f32"

    def stacked(self, count: int) -> "BlockWeight":
        """The same as `count` weights, with a scale for each block."""
        scale = self.scale
        if self.by_column:
            scale = np.repeat(np.asarray(scale), math.ceil(len(self.codes) / self.block), axis=0)
        return replace(self, scale=scale, stack=count)

    def kernel(self, isa: str, m: int, per_block: bool, digits: int, epilogue: Any) -> Gemv:
        (k, n), stack = self.codes.shape, self.stack
        return Gemv(
            isa=isa,
            m=m,
            k=k,
            n=n // max(stack, 1),
            stack=stack,
            bits=self.bits,
            block=self.block,
            per_block=per_block,
            digits=digits,
            zero=self.zero is not None,
            minimum=self.minimum is not None,
            scale=self.scale_type,
            outer=self.outer,
            epilogue=epilogue,
        )

    def column_sums(self) -> np.ndarray:
        """f32 [N]: the sums along K of the numbers that the codes stand for, each rounded once."""

        def wide(values: Any) -> np.ndarray:
            """Values by code, f64 [K, N]."""
            if isinstance(values, tuple):
                number, factor = (np.asarray(v, np.float64) for v in values)
                values = number * np.repeat(factor, self.outer, axis=0)[: len(number)]
            by_code = np.repeat(np.asarray(values, np.float64), self.block, axis=0)
            return by_code[: len(self.codes)]

        numbers = self.codes.astype(np.float64)
        if self.zero is not None:
            numbers = numbers - wide(self.zero)
        numbers = numbers * wide(self.scale)
        if self.minimum is not None:
            numbers = numbers + wide(self.minimum)
        return numbers.sum(0).astype(np.float32)

    def packed_bytes(self, kernel: Gemv) -> int:
        """The bytes of the kernel's operands that `operands` makes."""
        kinds = kernel.operands[2 : 3 + self.by_column]
        return sum(math.prod(t.shape) * t.dtype.itemsize for t in kinds)

    def operands(self, program: Program, name: str, kernel: Gemv) -> list[ir.Value]:
        """The packed weight and, where it is apart, the scale by column."""
        if not self.by_column:
            parts = self.codes, self.scale, self.minimum, self.zero
            which = range(max(self.stack, 1))
            each = [kernel.pack(*(_columns(p, kernel.n, i) for p in parts)) for i in which]
            packed = np.concatenate(each) if self.stack else each[0]
            return [program.add_weight(f"{name}:packed", packed)]
        column = kernel.pad_columns(np.asarray(self.scale)[0].astype(np.float32))
        packed = program.add_weight(f"{name}:packed", kernel.pack(self.codes))
        return [packed, program.add_weight(f"{name}:column_scale", column)]


def _columns(part: Any, count: int, number: int) -> Any:
    """Those of one weight of a stack, of an array or a pair of them."""
    if part is None or isinstance(part, tuple):
        return part and tuple(_columns(own, count, number) for own in part)
    return part[:, number * count : (number + 1) * count]
