"""A contraction with a stored weight, seen as one product of matrices.

What a kernel for such products needs to know of an op is asked of the op's rule
(`Contraction.matrices`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jq.formats import Encoding
from jq.ir import ir


class NotMatrices(Exception):
    """Reason why a contraction is no product of matrices; the message goes to the user."""


@dataclass(frozen=True)
class WeightProduct:
    """A contraction of a float value `x` and a weight, which is operand `side`.

    `attributes` are those of the op, `shape` is that of its result.
    """

    attributes: Mapping[str, ir.Attribute]
    side: int
    x: ir.Value
    weight: Encoding
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Matrices:
    """The product as f32[M, K] x [N, K] -> [M, N].

    Attributes:
        free: the weight's axes that are N, in order.
        contracted: those that are K, in order.
        rows: f32[M, K] of the other operand.
        result: makes the op's result, in the type of its argument, of [M, N].
    """

    free: Sequence[int]
    contracted: Sequence[int]
    rows: ir.Value
    result: Callable[[ir.Value], ir.Value]
