"""Rules: all that the compiler must know of an op. One op (or family) is a file of `ops/rules`.

A *contraction* sums products over axes of its operands; it says which axes those are (one scale
must hold along them) and how it is computed on integer codes. A *movement* only moves elements: a
dequantize in front of it can be moved after it (`sink`), and an axis of its result can be followed
back to an axis of its operand (`back`)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from jq.base.registry import register
from jq.formats import Integers, get_format
from jq.ir import OPS, Op, Program, ir, shape_of
from jq.ir.markers import Marker
from jq.ir.ops.geometry import Geometry, Matrices, NotMatrices, WeightProduct, of_window
from jq.ir.ops.lattice import FLOAT, Encoded, State
from jq.ir.ops.movement import Order, Orders, every_axis, with_starts

Axes = frozenset[int]


@dataclass(frozen=True)
class Role:
    """A contraction's use of one of its operands.

    Attributes:
        index: operand number.
        contracted: axes that are summed over (or read whole): one scale along them.
        block_axis: the contracted axis that blocks run along, None where blocks make no sense.
        beside: contracted axes of which each index has blocks of its own, where there are any."""

    index: int
    contracted: Axes
    block_axis: int | None
    beside: Axes = frozenset()


@dataclass(frozen=True)
class QuantizedOperand(Integers):
    """A dequantize marker taken apart for integer arithmetic; `sum` (i32): of blocks' codes."""

    sum: ir.Value | None

    @property
    def grid(self) -> tuple[int, ...]:
        return shape_of(self.scale)

    def constant_along(self, axes: Axes) -> bool:
        return all(self.grid[a] == 1 for a in axes)


class OpRule(ABC):  # noqa: B024 - what is abstract differs between the two kinds
    """Knowledge about one StableHLO op; subclasses that name an op register themselves.

    `sums`: it adds its operands, so that each may be rounded to one type before.
    `limits`: it bounds one operand by others. Rounding keeps order: all may be rounded before.
    `typed`: the operands of `of_one_type`, where these are the same for each such op.
    `around_zero`: only where that type has no zero point and as many codes below zero as above.
    `along`, `naming`, `starts`: of an op whose values all have the same axes (`orders`), attributes
    with an entry for each axis, those that name axes, and the first operand that says where an axis
    starts."""

    op: ClassVar[str] = ""  # without StableHLO's prefix; of a composite, its own name
    sums: ClassVar[bool] = False
    limits: ClassVar[bool] = False
    typed: ClassVar[tuple[int, ...]] = ()
    around_zero: ClassVar[bool] = False
    along: ClassVar[tuple[str, ...]] = ()
    naming: ClassVar[tuple[str, ...]] = ()
    starts: ClassVar[int] = 0
    registry: "ClassVar[dict[str, OpRule]]" = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.op:
            register(OpRule.registry, "the rule of op", cls.op, cls())

    def applies(self, op: Op) -> bool:
        """True if this instance of the op is one that the rule is about."""
        return True

    def geometry(self, op: Op) -> Geometry:
        """The figures that limits of devices are about."""
        return of_window(op)

    def elements(self, program: Program, op: Op) -> tuple[int, ...]:
        """Numbers of the operands whose elements the op moves or chooses from."""
        return ()

    def of_one_type(self, op: Op) -> tuple[int, ...]:
        """Numbers of operands with the result's quantized type where the op is on codes."""
        return self.typed

    def orders(self, op: Op, index: int, order: Order) -> Orders | None:
        """The orders of axes that it can compute in where operand `index` has one, or its results
        (`jq.ir.ops.movement.RESULT`); None where its values are read and made as they are."""
        if not (self.along or self.naming or self.starts):
            return None
        return with_starts(every_axis(op, order, self.along, self.naming), order, self.starts)

    def factor(self, program: Program, op: Op) -> tuple[int, np.ndarray] | None:
        """Number of the operand that a constant multiplies, and by what: size 1 along every axis on
        which it does not depend."""
        return None

    def encoded(self, program: Program, op: Op, states: Sequence[State]) -> State:
        """The encoding of the first result, given those of the operands."""
        return FLOAT

    def details(self, op: Op) -> dict[str, Any]:
        """The op's attributes in golden vectors, beside its operands, as JSON, from which
        `jq/device/replay_ops.py` computes it; `ValueError` says why it cannot."""
        return {}

    def carry(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        """The first result where `encoded` knows it, as the dequantize of codes, at the current
        insertion point; None where its parts cannot be had. `markers` are the dequantizes of the
        operands that are encoded."""
        return None


class Sinking(OpRule):
    """An op that a dequantize in front of it can be moved after."""

    @abstractmethod
    def sink(self, program: Program, op: Op, marker: Marker) -> ir.Value | None:
        """The op applied to the parts, then the dequantize; None where that cannot be. `marker` is
        that of the first operand."""


class Movement(Sinking):
    """An op that moves the elements of one tensor without changing them."""

    typed: ClassVar[tuple[int, ...]] = (0,)

    def back(self, op: Op, axes: Axes) -> Axes:
        """The operand's axes that these axes of the result come from."""
        return axes

    def elements(self, program: Program, op: Op) -> tuple[int, ...]:
        return self.typed

    def encoded(self, program: Program, op: Op, states: Sequence[State]) -> State:
        if not isinstance(state := states[0], Encoded):
            return state
        if max(state.encoding.block, default=0) > 1:
            return FLOAT  # blocks of a stored weight move with it (`sink`)
        shape = shape_of(op.results[0])
        scaled = {a for a, n in enumerate(state.encoding.grid) if n > 1}
        return state.of_shape(
            shape, [a for a in range(len(shape)) if self.back(op, frozenset({a})) & scaled]
        )

    def carry(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        return None if markers[0] is None else self.sink(program, op, markers[0])


class Contraction(OpRule):
    """An op that may be computed on integer codes.

    `sums_products`: on codes of one scale along contracted axes it is the exact sum of their
    products, in steps of the product of both scales. `splits_blocks`: also on codes with several
    scales along a contracted axis. `feature_map`: what it makes is large and is added to others of
    its kind; with static ranges such sums are stored as codes, and its result becomes codes in one
    step. `any_order`: a transpose of what it reads or makes is a part of it, and costs little."""

    sums_products: ClassVar[bool] = False
    splits_blocks: ClassVar[bool] = False
    feature_map: ClassVar[bool] = False
    any_order: ClassVar[bool] = False

    @abstractmethod
    def roles(self, op: Op) -> tuple[Role, ...]:
        """The operands that can be quantized."""

    @abstractmethod
    def terms(self, op: Op) -> int:
        """Number of products that are summed into one element of the result."""

    @abstractmethod
    def lower(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        """The result computed on codes, at the current insertion point; None to leave it."""

    def accumulate(self, op: Op, lhs: QuantizedOperand, rhs: QuantizedOperand) -> ir.Value | None:
        """The integer sum of (codes - zero point) products; None where scales vary in a sum."""
        sides = zip((lhs, rhs), self.roles(op), strict=True)
        whole = self.sums_products and all(
            x.offset is None and x.constant_along(role.contracted) for x, role in sides
        )
        return self.sum_of_products(op, lhs, rhs) if whole else None

    def sum_of_products(self, op: Op, lhs: QuantizedOperand, rhs: QuantizedOperand) -> ir.Value:
        """The sum, of operands with one scale along contracted axes; for `sums_products`."""
        raise NotImplementedError

    def result_axes(self, op: Op, index: int) -> dict[int, int]:
        """Axes of an operand that the result has too -> the result's axes."""
        return {}

    def summed_with(self, op: Op, index: int) -> dict[int, int]:
        """Axes of an operand -> the axis of the other that is summed together with it. Where both
        are rotated alike along such a pair, the result stays what it was."""
        return {}

    def linear_axes(self, op: Op, index: int) -> dict[int, int]:
        """Axes of an operand -> the axis of the result that any linear map along it passes to."""
        return {}

    def matrices(self, product: WeightProduct) -> Matrices:
        """The op with a stored weight as one product of matrices, at the current insertion point;
        `NotMatrices` says why it is none."""
        raise NotMatrices(f"{self.op} is no product of matrices")

    def decline(self, op: Op) -> str | None:
        """Reason why this instance of the op cannot be quantized, or None."""
        return None


def codes_of(marker: Marker | None) -> QuantizedOperand | None:
    """Signed integer codes of a dequantize marker, or None when its format has none."""
    if marker is None:
        return None
    found = get_format(marker.encoding.format).integers(OPS, marker.parts, marker.encoding)
    return None if found is None else QuantizedOperand(**vars(found), sum=marker.parts.get("sum"))
