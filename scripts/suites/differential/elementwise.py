"""Ops on each element for itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from suites.differential.draw import drawer, is_float, is_integer, partner
from suites.differential.graph import FLOATS, INTEGERS, ROOM, STEP, Graph, Value

QUOTIENTS = 2.0**14  # of a number and a step of those that are divided by an odd number
SIGNS = {"i8": 8, "i16": 16, "i32": 32, "ui8": 8}


@drawer("add", 4)
def add(g: Graph) -> Value | None:
    return _sum(g, "add")


@drawer("subtract", 3)
def subtract(g: Graph) -> Value | None:
    return _sum(g, "subtract")


def _sum(g: Graph, name: str) -> Value | None:
    v = g.pick(lambda v: v.kind != "i1")
    if v is None:
        return None
    a, b = _two(g, v, 4)
    step = min(a.step, b.step)
    return g.like(name, a, b, most=a.most + b.most, step=step)


def _two(g: Graph, v: Value, share: float) -> tuple[Value, Value]:
    """`v` and a partner, each of which takes at most a part of the room there is."""
    other = partner(g, v)
    if not v.is_float:
        return v, other
    room = ROOM[v.kind] / share
    return g.fit(v, room), g.fit(other, room)


@drawer("multiply", 4)
def multiply(g: Graph) -> Value | None:
    v = g.pick(lambda v: v.kind != "i1")
    if v is None:
        return None
    if v.is_float and g.chance(0.5):  # by a constant, or one for each channel
        v = g.fit(v, ROOM[v.kind] / 8)
        factors = 2.0 ** g.rng.integers(-2, 3, v.shape[-1:]) * g.choose([1.0, -1.0, 3.0])
        wide = _spread(g, g.constant(factors, v.kind), v)
        most = float(np.abs(factors).max(initial=0)) * v.most
        return g.like("multiply", v, wide, most=most, step=v.step / 4)
    other = partner(g, v)
    if not v.is_float:
        return g.like("multiply", v, other)
    room = 2.0 ** int(np.log2(ROOM[v.kind]) / 2)
    a, b = g.fit(v, room, 8.0), g.fit(other, room, 8.0)
    return g.like("multiply", a, b, most=a.most * b.most, step=a.step * b.step)


def _spread(g: Graph, row: Value, v: Value) -> Value:
    axes = f"broadcast_dimensions = array<i64{': ' if row.shape else ''}"
    axes += f"{len(v.shape) - 1 if row.shape else ''}>"
    return g.op("broadcast_in_dim", [row], v.shape, v.kind, row.most, row.step, axes)


@drawer("divide")
def divide(g: Graph) -> Value | None:
    v = g.pick(lambda v: v.kind != "i1")
    if v is None:
        return None
    if not v.is_float:
        return g.like("divide", v, _positive(g, partner(g, v)))
    by = float(g.choose([2.0, 0.5, 4.0, 3.0, -7.0]))
    return divided(g, v, by)


def divided(g: Graph, v: Value, by: float) -> Value:
    """By a power of two, or by an odd number and rounded where no quotient comes near to a tie.

    A compiler may divide the weights of a product instead, which makes its sums inexact: by less
    than half of what is between two quotients, where `v` has room for so few numbers.
    """
    odd, wide = by not in (2.0, 0.5, 4.0), v.kind == "f32"
    most = 2.0 ** math.ceil(math.log2(max(v.most, 1.0)))
    if odd and wide and most / v.step > QUOTIENTS:
        v = g.settle(v, most, QUOTIENTS)
    known = {"most": v.most / abs(by), "step": v.step / abs(by)}
    result = g.like("divide", v, g.full(v, by), **known)
    if not odd:
        return result
    between = v.step / STEP / abs(by)  # quotients, in steps of what is rounded to
    ties = v.step < STEP  # otherwise no quotient is one
    return g.settle(result, offset=0.5 + between / 2 if ties and wide else 0.0)


def _positive(g: Graph, v: Value) -> Value:
    return g.like("maximum", v, g.full(v, 1))


@drawer("remainder", 1)
def remainder(g: Graph) -> Value | None:
    v = g.pick(lambda v: v.kind != "i1")
    if v is None:
        return None
    if v.is_float:
        by = float(g.choose([1.0, 3.0, 4.0]))
        return g.like("remainder", v, g.full(v, by), most=by)
    return g.like("remainder", v, _positive(g, partner(g, v)))


@drawer("maximum, minimum", 4)
def extremes(g: Graph) -> Value | None:
    v = g.pick()
    if v is None:
        return None
    name = g.choose(["maximum", "minimum"])
    if v.kind != "i1" and g.chance(0.5):  # a relu, among others
        bound = g.full(v, float(g.choose([0, 0, 1, 6])))
        return g.like(name, v, bound, most=max(v.most, 6.0), step=min(v.step, 1.0))
    other = partner(g, v)
    return g.like(name, v, other, most=max(v.most, other.most), step=min(v.step, other.step))


@drawer("clamp")
def clamp(g: Graph) -> Value | None:
    v = g.pick(lambda v: v.kind != "i1")
    if v is None:
        return None
    low, high = sorted(int(n) for n in g.rng.integers(0 if v.kind == "ui8" else -9, 10, 2))
    bounds = [g.scalar(low, v.kind), g.scalar(high, v.kind)]
    return g.op("clamp", [bounds[0], v, bounds[1]], v.shape, v.kind, 9.0, min(v.step, 1.0))


@drawer("rounding", 3)
def rounding(g: Graph) -> Value | None:
    v = g.pick(is_float)
    if v is None:
        return None
    name = g.choose(["floor", "ceil", "round_nearest_even", "round_nearest_afz"])
    return g.like(name, v, most=v.most + 1, step=max(v.step, 1.0))


@drawer("signs", 3)
def signs(g: Graph) -> Value | None:
    v = g.pick(lambda v: v.kind != "i1" and not v.kind.startswith("u"))
    if v is None:
        return None
    name = g.choose(["negate", "abs", "sign"])
    return g.like(name, v, most=max(v.most, 1.0), step=min(v.step, 1.0))


# Each on the multiples of 1/16 between -8 and 8, in parts of which it is defined.
FUNCTIONS: dict[str, tuple[Any, float, float]] = {
    "exponential": (np.exp, -8, 2.0),
    "exponential_minus_one": (np.expm1, -8, 2.0),
    "log": (np.log, 1, 8.0),
    "log_plus_one": (np.log1p, 0, 8.0),
    "logistic": (lambda x: 1 / (1 + np.exp(-x)), -8, 8.0),
    "tanh": (np.tanh, -8, 8.0),
    "sine": (np.sin, -8, 8.0),
    "cosine": (np.cos, -8, 8.0),
    "tan": (np.tan, -1, 1.0),
    "sqrt": (np.sqrt, 0, 8.0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1, 8.0),
    "cbrt": (np.cbrt, -8, 8.0),
}


@drawer("function", 5)
def function(g: Graph) -> Value | None:
    """Evaluators differ in last places: it is rounded where no argument comes near to a tie."""
    v = g.pick(lambda v: v.kind == "f32")
    if v is None:
        return None
    name = g.choose(list(FUNCTIONS))
    of, low, high = FUNCTIONS[name]
    v = v if v.most <= high and v.step >= STEP and low == -high else g.settle(v, 8.0)
    bounds = [g.scalar(float(low), v.kind), g.scalar(high, v.kind)]
    inside = g.op("clamp", [bounds[0], v, bounds[1]], v.shape, v.kind, 8.0, STEP)
    result = g.like(name, inside, most=8.0, step=2.0**-20)
    return g.settle(result, offset=_offset(of(np.arange(low / STEP, high / STEP + 1) * STEP)))


def _offset(results: np.ndarray) -> float:
    """The addend in front of `floor`: as far as can be from a step for all these results."""
    parts = np.sort(np.concatenate([(results / STEP) % 1, [0.0, 1.0]]))
    gap = int(np.argmax(np.diff(parts)))
    return float(np.round(256 * (1 - (parts[gap] + parts[gap + 1]) / 2)) / 256)


@drawer("compare and select", 4)
def select(g: Graph) -> Value | None:
    v = g.pick()
    if v is None:
        return None
    other = partner(g, v)
    way = g.choose(["LT", "LE", "GT", "GE", "EQ", "NE"])
    compared = g.op(
        "compare",
        [v, other],
        v.shape,
        "i1",
        attributes=f"comparison_direction = #stablehlo<comparison_direction {way}>",
    )
    if g.chance(0.3):
        return compared
    a = g.pick(lambda u: u.shape == v.shape and u.kind == v.kind) or v
    known = max(a.most, v.most), min(a.step, v.step)
    return g.op("select", [compared, v, a], v.shape, v.kind, *known)


@drawer("is_finite", 1)
def is_finite(g: Graph) -> Value | None:
    v = g.pick(is_float)
    return g.op("is_finite", [v], v.shape, "i1") if v else None


@drawer("logic")
def logic(g: Graph) -> Value | None:
    v = g.pick(lambda v: not v.is_float)
    if v is None:
        return None
    name = g.choose(["and", "or", "xor", "not"])
    return g.like(name, v) if name == "not" else g.like(name, v, partner(g, v))


@drawer("shift", 1)
def shift(g: Graph) -> Value | None:
    v = g.pick(is_integer)
    if v is None:
        return None
    name = g.choose(["shift_left", "shift_right_arithmetic", "shift_right_logical"])
    places = g.like("and", partner(g, v), g.full(v, SIGNS[v.kind] - 1))
    return g.like(name, v, places)


@drawer("bits", 1)
def bits(g: Graph) -> Value | None:
    v = g.pick(is_integer)
    return g.like(g.choose(["popcnt", "count_leading_zeros"]), v) if v else None


@drawer("convert", 4)
def convert(g: Graph) -> Value | None:
    v = g.pick()
    if v is None:
        return None
    kind = g.choose([k for k in (*FLOATS, *INTEGERS, "i1") if k != v.kind])
    if not v.is_float:
        if kind not in ROOM:
            return g.op("convert", [v], v.shape, kind)
        v = _narrow(g, v)
        return g.op("convert", [v], v.shape, kind, 100.0, 1.0)
    if kind in ROOM:
        v = g.fit(v, ROOM[kind])
        return g.op("convert", [v], v.shape, kind, v.most, v.step)
    if kind == "ui8":
        v = g.like("abs", v)
    v = g.fit(v, most=100.0)
    return g.op("convert", [v], v.shape, kind)


def _narrow(g: Graph, v: Value) -> Value:
    """Integers that every float type has."""
    if v.kind == "i1":
        return v
    low, high = g.full(v, 0 if v.kind == "ui8" else -100), g.full(v, 100)
    return g.op("clamp", [low, v, high], v.shape, v.kind)


@drawer("bitcast", 1)
def bitcast(g: Graph) -> Value | None:
    v = g.pick(lambda v: v.kind in ("i8", "ui8", "f32", "i16"))
    if v is None:
        return None
    kind = {"i8": "ui8", "ui8": "i8", "f32": "i32", "i16": "i16"}[v.kind]
    if kind == "i32":  # zeros may have either sign
        v = g.like("abs", g.fit(v))
    return g.op("bitcast_convert", [v], v.shape, kind)


@drawer("reduce_precision", 1)
def reduce_precision(g: Graph) -> Value | None:
    v = g.pick(lambda v: v.kind == "f32")
    if v is None:
        return None
    v = g.fit(v, 2.0**11)
    return g.op(
        "reduce_precision",
        [v],
        v.shape,
        v.kind,
        v.most,
        v.step,
        "exponent_bits = 8 : i32, mantissa_bits = 11 : i32",
    )


@drawer("complex", 1)
def complex_parts(g: Graph) -> Value | None:
    v = g.pick(lambda v: v.kind == "f32")
    if v is None:
        return None
    other = partner(g, v)
    whole = g.op("complex", [v, other], v.shape, "complex<f32>")
    part = g.choose(["real", "imag"])
    known = (v.most, v.step) if part == "real" else (other.most, other.step)
    return g.op(part, [whole], v.shape, "f32", *known)


@drawer("optimization_barrier", 1)
def barrier(g: Graph) -> Value | None:
    v = g.pick()
    return g.like("optimization_barrier", v) if v else None
