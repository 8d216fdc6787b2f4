r"""A lattice of what is known about the encoding of a float value's numbers.

                 conflict            numbers of several encodings, or of one and others
             /    |     |   \
        float     e1    e2   ...     numbers that nobody quantized; those of one encoding
             \    |     |   /
                 unknown             nothing has reached the value yet

An encoding here is a format with its parameters: two tensors of int8 with other scales differ.
Constants take sides with whatever they meet, where its codes can hold them; zero can always be
held. Each op says by its rule (`OpRule.encoded`) what it makes of the encodings of its operands;
`jq.ir.ops.dataflow` finds the least solution for a program."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from jq.formats import Encoding, affine_format, is_affine
from jq.ir import Program, ir, one_step, shape_of
from jq.ir.affine import constant_of
from jq.ir.markers import QUANTIZE_DYNAMIC, Marker, match


class Other(Enum):
    """States of a value that has no encoding."""

    UNKNOWN = "unknown"
    FLOAT = "float"
    CONFLICT = "conflict"


UNKNOWN, FLOAT, CONFLICT = Other.UNKNOWN, Other.FLOAT, Other.CONFLICT


@dataclass(frozen=True)
class Encoded:
    """Every element is `scale * (code - zero point)` of one set of parameters.

    Attributes:
        encoding: of the value's own shape.
        scale, zero_point: of the whole tensor, where it has one of each and they are known now.
        origin: the values that hold them, where they are not.
        factor: what the program multiplies `origin`'s scales by.
        rounded: but for a bound that lies between two codes: the numbers at it are of no code."""

    encoding: Encoding
    scale: float | None
    zero_point: int = 0
    origin: tuple[ir.Value, ...] = ()
    factor: float = 1.0
    rounded: bool = False

    @property
    def whole(self) -> bool:
        """True if all elements have one scale."""
        return math.prod(self.encoding.grid) == 1

    def of_shape(self, shape: Sequence[int], scaled: Sequence[int] = ()) -> "Encoded":
        """The same numbers in another shape, with a scale for each index of the axes `scaled`."""
        block = tuple(int(a in scaled) for a in range(len(shape)))
        return replace(self, encoding=self.encoding.with_shape(tuple(shape), block))

    def times(self, factor: float) -> "Encoded":
        """The scale takes a positive factor."""
        if self.scale is None:
            return replace(self, factor=self.factor * factor)
        return replace(self, scale=float(np.float32(self.scale) * np.float32(factor)))

    def alike(self, other: "Encoded") -> bool:
        """True if two tensors with one scale each have the same format and parameters."""
        bare = [
            replace(e, encoding=e.encoding.with_shape((), ()), rounded=False) for e in (self, other)
        ]
        return self.whole and other.whole and bare[0] == bare[1]

    @property
    def limits(self) -> tuple[float, float] | None:
        """The smallest and the largest number; None where the parameters are not known."""
        if self.scale is None:
            return None
        ends = affine_format(self.encoding.format).limits(self.encoding)
        low, high = (np.float32(self.scale) * np.float32(c - self.zero_point) for c in ends)
        return float(low), float(high)

    def code(self, x: np.ndarray) -> np.ndarray:
        """The nearest codes of numbers, for a tensor whose one scale is known."""
        assert self.scale is not None
        fmt = affine_format(self.encoding.format)
        low, high = fmt.limits(self.encoding)
        steps = np.rint(np.asarray(x, np.float32) / np.float32(self.scale)) + self.zero_point
        return np.clip(steps, low, high).astype(fmt.code_type)

    def holds(self, x: np.ndarray) -> bool:
        """True if numbers are those of codes, within the rounding of a product."""
        if not np.any(x):
            return True
        if self.scale is None or not self.whole or not np.isfinite(x).all():
            return False
        codes = self.code(x).astype(np.float32) - np.float32(self.zero_point)
        return bool(np.allclose(codes * np.float32(self.scale), x, rtol=2.0**-22, atol=0))


State = Encoded | Other


def of_marker(program: Program, marker: Marker) -> State:
    """The state of a dequantize's result."""
    enc, parts = marker.encoding, marker.parts
    if not is_affine(enc.format) and "codes" in parts and match(parts["codes"], QUANTIZE_DYNAMIC):
        # Rounded to blocks at run time: without these, since it tells ops after it only that no
        # other format is to round their numbers again.
        bare = enc.with_shape(enc.shape, (0,) * len(enc.shape))
        return Encoded(bare, None, origin=(parts["codes"],))
    if not is_affine(enc.format) or shape_of(parts["codes"]) != enc.shape:
        return FLOAT  # no codes that an op could work on one by one
    if (known := one_step(program, parts)) is not None:
        return Encoded(enc, float(known[0]), known[1])
    origin = tuple(parts[k] for k in ("scale", "zero_point") if k in parts)
    return Encoded(enc, None, origin=origin)


def common(
    program: Program, operands: Sequence[tuple[ir.Value, State]], shape: Sequence[int]
) -> State:
    """The least that holds for a value whose elements are those of all the operands."""
    states = [state for _, state in operands]
    first = next((s for s in states if isinstance(s, Encoded)), None)
    if first is None:
        return next((s for s in (CONFLICT, FLOAT) if s in states), UNKNOWN)
    if not first.whole:
        return CONFLICT
    for value, state in operands:
        if isinstance(state, Encoded):
            if not state.alike(first):
                return CONFLICT
        elif state is not UNKNOWN:
            array = constant_of(program, value)
            if array is None or not first.holds(array):
                return CONFLICT
    rounded = any(isinstance(s, Encoded) and s.rounded for s in states)
    return replace(first.of_shape(shape), rounded=rounded)
