"""Formulas of tensors: `x * x + 0.5` builds ops at the current insertion point."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxlib.mlir import ir

from jq.ir.arrays import OPS


def _operator(name: str, *, turned: bool = False) -> "Callable[[Any, Any], Number]":
    """`turned`: the number on the left is the one that the operator is not called of."""
    build = getattr(OPS, name)

    def apply(x: "Number", other: "Number | float") -> "Number":
        first, second = x.value, x.of(other)
        return Number(build(second, first) if turned else build(first, second))

    return apply


def _comparison(direction: str) -> "Callable[[Any, Any], Number]":
    return lambda x, other: Number(OPS.compare(x.value, x.of(other), direction))


class Number:
    """A value in formulas. What stands beside it is another of its shape and type, or one number,
    which takes both from it."""

    def __init__(self, value: ir.Value) -> None:
        self.value = value

    def of(self, other: "Number | float") -> ir.Value:
        return other.value if isinstance(other, Number) else OPS.full(self.value, other)

    __add__ = __radd__ = _operator("add")
    __mul__ = __rmul__ = _operator("mul")
    __and__, __or__, __xor__ = map(_operator, ("bit_and", "bit_or", "bit_xor"))
    __lshift__, __rshift__ = map(_operator, ("shift_left", "shift_right_signed"))
    __sub__, __rsub__ = _operator("sub"), _operator("sub", turned=True)
    __truediv__, __rtruediv__ = _operator("quotient"), _operator("quotient", turned=True)
    __lt__, __le__, __gt__, __ge__ = map(_comparison, ("LT", "LE", "GT", "GE"))
    equals = _comparison("EQ")
    minimum, maximum = map(_operator, ("minimum", "maximum"))

    def __abs__(self) -> "Number":
        return Number(OPS.abs(self.value))

    def __neg__(self) -> "Number":
        return self * -1

    def as_type(self, dtype: Any) -> "Number":
        return Number(OPS.convert(self.value, dtype))

    def bits(self, dtype: Any) -> "Number":
        """The same bits, as another type of their width."""
        return Number(OPS.bitcast(self.value, dtype))

    def rounded(self) -> "Number":
        """The nearest whole numbers, of ties the even ones."""
        return Number(OPS.round_even(self.value))

    def is_negative(self) -> "Number":
        """The sign of a float32; -0 has it, too."""
        return self.bits(np.int32) < 0


def where(condition: Number, yes: Number | float, no: Number | float) -> Number:
    """One of both at each place; one of them, at least, is no plain number."""
    like = yes if isinstance(yes, Number) else no
    assert isinstance(like, Number)
    return Number(OPS.select(condition.value, like.of(yes), like.of(no)))
