"""Float ops that have a form on codes, read from the op itself. Shared by marking and lowering."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.ir import Op, Program, dtype_of, evaluate, integers, ir, kind_of, maker, only_user, shape_of
from jq.ir.markers import marker_kind
from jq.ir.ops.selection import splat_of
from jq.ir.pointwise import ELEMENTWISE
from jq.ir.slicing import Cut
from jq.ir.types import number_kind
from jq.ir.values import reached

Bounds = tuple[float, float]
PRODUCTS_AND_SUMS = ("stablehlo.add", "stablehlo.subtract", "stablehlo.multiply")


def is_float(value: ir.Value) -> bool:
    return dtype_of(value) == np.float32


def clamp_of(program: Program, op: Op, value: ir.Value) -> Bounds | None:
    """Bounds when `op` is `min(max(value, low), high)` with numbers for bounds."""
    kind, operands = kind_of(op), list(op.operands)
    if kind == "stablehlo.clamp" and operands[1] == value:
        low, high = splat_of(program, operands[0]), splat_of(program, operands[2])
        return None if low is None or high is None else (low, high)
    if kind not in ("stablehlo.maximum", "stablehlo.minimum") or operands.count(value) != 1:
        return None
    bound = splat_of(program, operands[1 - operands.index(value)])
    if bound is None or math.isnan(bound):
        return None
    return (bound, math.inf) if kind.endswith("maximum") else (-math.inf, bound)


def clamps_behind(
    program: Program, value: ir.Value, *, alone: bool = False
) -> tuple[Bounds, ir.Value]:
    """Bounds of clamps that end in `value`, and what they clamp; `alone`: those of one reader."""
    low, high = -math.inf, math.inf
    while (op := maker(value)) is not None and (not alone or only_user(value) is not None):
        found = next(((b, x) for x in op.operands if (b := clamp_of(program, op, x))), None)
        if found is None or evaluate(program, found[1]) is not None:
            break
        (first, last), value = found
        # An earlier clamp: what it gives is clamped by those that we have.
        low, high = min(max(first, low), high), max(min(last, high), low)
    return (low, high), value


def is_table(cut: Cut) -> bool:
    """True if a cut is a function of single elements, to floats or whole numbers."""
    whole = number_kind(dtype_of(cut.result)) == "i"
    return (is_float(cut.result) or whole) and is_elementwise(cut)


def is_elementwise(cut: Cut) -> bool:
    """True if a cut is a function of single elements, the same one for all."""
    arrays = cut.constants.values()
    return (
        shape_of(cut.result) == shape_of(cut.source)
        and all(kind_of(op) in ELEMENTWISE for op in cut.ops)
        and all(a.size and ((a == a.flat[0]).all() or (a != a).all()) for a in arrays)
    )


def behind(value: ir.Value, limit: int = 40) -> list[ir.Value]:
    """Values that `value` is computed from, nearest first, at most `limit` ops away."""

    def follow(v: ir.Value) -> Sequence[ir.Value]:
        return [] if maker(v) is None or marker_kind(v.owner) else list(v.owner.operands)

    return list(reached([value], follow, limit))[1:]


def apply_to_codes(cut: Cut, x: np.ndarray, of: Any = np.float32) -> np.ndarray:
    """The cut's function of a vector of values, computed in float32 as the program has it or in
    another type; float32, if they are numbers."""
    numbers = {v: a.reshape(-1)[0] for v, a in cut.constants.items()}
    y = np.asarray(Cut(cut.source, cut.result, cut.ops, numbers)(x.astype(of)))
    return y.astype(np.float32) if y.dtype == np.float64 else y


@dataclass(frozen=True)
class Softmax:
    """A cut that is softmax along `axis`."""

    cut: Cut
    axis: int


def as_softmax(cut: Cut) -> Softmax | None:
    """The softmax that a cut computes of its source, if it is one."""
    shape, kinds = shape_of(cut.source), [kind_of(op) for op in cut.ops]
    if shape_of(cut.result) != shape or not is_float(cut.source) or math.prod(shape) < 2:
        return None
    if kinds.count("stablehlo.exponential") != 1 or kinds[-1] != "stablehlo.divide":
        return None
    reduce = next((op for op in cut.ops if kind_of(op) == "stablehlo.reduce"), None)
    axes = integers(reduce, "dimensions") if reduce else ()
    if len(axes) != 1:
        return None
    x = (4 * np.random.default_rng(0).standard_normal(shape)).astype(np.float32)
    e = np.exp(x.astype(np.float64) - x.max(axes, keepdims=True))
    far = np.abs(cut(x) - e / e.sum(axes, keepdims=True)).max() >= 1e-5
    return None if far else Softmax(cut, axes[0])
