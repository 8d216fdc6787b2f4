"""Figures that limits of devices are about (the window, channels, groups and batch of an op), and
contractions with a stored weight, seen as one product of matrices."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jq.formats import Encoding
from jq.ir import ir
from jq.ir.build import Described, integers, padding_pairs


@dataclass(frozen=True)
class Geometry:
    """Attributes:
    window, stride, dilation, interior: along each axis of the window; none without one. Interior
        is how far apart elements of the input are (1: side by side).
    padding: low and high.
    channels: read and written; none for ops without channels."""

    window: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    interior: tuple[int, ...] = ()
    padding: tuple[tuple[int, int], ...] = ()
    channels: tuple[int, ...] = ()
    groups: int = 1
    batch: int = 1

    @property
    def depthwise(self) -> bool:
        """A group for each channel."""
        return 1 < self.groups == self.channels[0]


def of_window(op: Described) -> Geometry:
    """The geometry of a pool, or of an op without a window."""
    window = integers(op, "window_dimensions")
    ones = (1,) * len(window)
    return Geometry(
        window=window,
        stride=integers(op, "window_strides") or ones,
        dilation=integers(op, "window_dilations") or ones,
        interior=integers(op, "base_dilations") or ones,
        padding=tuple(padding_pairs(op, len(window))),
    )


class NotMatrices(Exception):
    """The reason, for the user, why a contraction is no product of matrices (`matrices`)."""


@dataclass(frozen=True)
class WeightProduct:
    """A contraction of a float value `x` and a weight, which is operand `side`; `attributes` are
    the op's, `shape` is that of its result."""

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
        result: makes the op's result, in the type of its argument, of [M, N]."""

    free: Sequence[int]
    contracted: Sequence[int]
    rows: ir.Value
    result: Callable[[ir.Value], ir.Value]
