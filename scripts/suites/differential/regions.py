"""Ops with a body: reductions, windows, sorts, scatters, loops and branches."""

from __future__ import annotations

import math
from dataclasses import replace

from suites.differential.draw import axis_of, drawer, has_axis, partner
from suites.differential.graph import LARGEST, ROOM, Graph, Value
from suites.differential.movement import index, ints

# How two elements become one: the start of an integer and of a float type.
LEAST = {"i8": -128, "i16": -32768, "i32": -(2**31), "ui8": 0, "i1": 0}


def body(g: Graph, name: str, kind: str) -> str:
    """A region of two numbers."""
    a, b, c = g.name(), g.name(), g.name()
    one = f"tensor<{kind}>"
    return (
        f"{{ ^bb0({a}: {one}, {b}: {one}): {c} = stablehlo.{name} {a}, {b} : {one}"
        f' "stablehlo.return"({c}) : ({one}) -> () }}'
    )


def start(g: Graph, name: str, kind: str) -> Value:
    if name == "add":
        return g.scalar(0, kind)
    low = -math.inf if kind in ROOM else LEAST[kind]
    high = 1 if kind == "i1" else 255 if kind == "ui8" else -LEAST.get(kind, 0) - 1
    return g.scalar(low if name == "maximum" else 2.0**15 if kind in ROOM else high, kind)


def how(g: Graph, v: Value, terms: int) -> tuple[str, Value, float]:
    """The op of a reduction, its operand, and the largest magnitude of its result."""
    name = g.choose(["add", "add", "maximum", "minimum"] if v.kind != "i1" else ["or", "and"])
    if v.is_float and name == "add":
        v = g.fit(v, ROOM[v.kind] / (2 * max(terms, 1)))
        return name, v, v.most * terms
    return name, v, v.most


def first(g: Graph, name: str, kind: str) -> Value:
    return g.scalar(name == "and", kind) if kind == "i1" else start(g, name, kind)


@drawer("reduce", 5)
def reduce(g: Graph) -> Value | None:
    v = g.pick(has_axis)
    if v is None:
        return None
    axes = sorted({axis_of(g, v), axis_of(g, v)} if g.chance(0.2) else {axis_of(g, v)})
    name, v, most = how(g, v, math.prod(v.shape[a] for a in axes))
    shape = [n for a, n in enumerate(v.shape) if a not in axes]
    inside = body(g, name, v.kind)
    known = f"dimensions = {ints(axes)}"
    begin = first(g, name, v.kind)
    return g.op("reduce", [v, begin], shape, v.kind, most, v.step, known, inside)


@drawer("reduce_window", 4)
def reduce_window(g: Graph) -> Value | None:
    v = g.pick(lambda v: bool(v.shape) and v.size <= LARGEST // 2)
    if v is None:
        return None
    window = [min(n, g.choose((1, 2, 3))) for n in v.shape]
    step = [g.choose((1, 1, 2)) for _ in v.shape]
    edges = [[g.choose((0, 0, 1)) if k > 1 else 0 for _ in range(2)] for k in window]
    shape = [
        (n + sum(e) - k) // s + 1 for n, e, k, s in zip(v.shape, edges, window, step, strict=True)
    ]
    if math.prod(shape) > LARGEST or min(shape) < 1:
        return None
    name, v, most = how(g, v, math.prod(window))
    # Padding is the start of the reduction: where only it is in a window, nothing is known.
    rank = len(v.shape)
    known = (
        f"window_dimensions = {ints(window)}, window_strides = {ints(step)},"
        f" padding = dense<{edges}> : tensor<{rank}x2xi64>,"
        f" base_dilations = {ints([1] * rank)}, window_dilations = {ints([1] * rank)}"
    )
    begin = first(g, name, v.kind)
    inside = body(g, name, v.kind)
    return g.op("reduce_window", [v, begin], shape, v.kind, most, v.step, known, inside)


@drawer("sort", 2)
def sort(g: Graph) -> Value | None:
    """One operand; its equal elements cannot be told apart."""
    v = g.pick(lambda v: bool(v.shape) and v.kind != "i1")
    if v is None:
        return None
    way = g.choose(["LT", "GT"])
    a, b, c, one = g.name(), g.name(), g.name(), f"tensor<{v.kind}>"
    inside = (
        f"{{ ^bb0({a}: {one}, {b}: {one}): {c} = stablehlo.compare {way}, {a}, {b} :"
        f' ({one}, {one}) -> tensor<i1> "stablehlo.return"({c}) : (tensor<i1>) -> () }}'
    )
    known = f"dimension = {axis_of(g, v)} : i64, is_stable = true"
    return g.op("sort", [v], v.shape, v.kind, v.most, v.step, known, inside)


@drawer("scatter", 3)
def scatter(g: Graph) -> Value | None:
    """Rows of another tensor added to, or put in the place of, rows of a tensor. Only additions
    meet a row twice: which of two would stay is not said."""
    v = g.pick(lambda v: bool(v.shape) and v.kind != "i1")
    if v is None:
        return None
    rows = v.shape[0]
    name = g.choose(["add", "add", "replace", "maximum"])
    n = int(g.rng.integers(1, min(rows, 4) + 1))
    if name == "replace":
        places = g.rng.permutation(rows + 1)[:n]
    else:
        places = g.rng.integers(-1, rows + 1, n)
    at = g.constant(places.reshape(n, 1), "i32")
    zeros, ones = ints([0] * len(v.shape)), ints([1] * len(v.shape))
    cut = f"limit_indices = {ints([n, *v.shape[1:]])}, strides = {ones}"
    if v.is_float and name == "add":
        v = g.fit(v, ROOM[v.kind] / 16)
    updates = partner(g, v)
    if v.is_float and name == "add":
        updates = g.fit(updates, ROOM[v.kind] / 16)
    known = f"start_indices = {zeros}, {cut}"
    updates = g.moved("slice", updates, [n, *v.shape[1:]], known)
    numbers = (
        f"#stablehlo.scatter<update_window_dims = {list(range(1, len(v.shape)))},"
        " inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
    )
    inside = body(g, name, v.kind) if name != "replace" else _replaced(g, v.kind)
    known = f"scatter_dimension_numbers = {numbers}, unique_indices = false"
    most = v.most + 4 * updates.most if name == "add" else max(v.most, updates.most)
    step = min(v.step, updates.step)
    return g.op("scatter", [v, at, updates], v.shape, v.kind, most, step, known, inside)


def _replaced(g: Graph, kind: str) -> str:
    a, b, one = g.name(), g.name(), f"tensor<{kind}>"
    return f'{{ ^bb0({a}: {one}, {b}: {one}): "stablehlo.return"({b}) : ({one}) -> () }}'


@drawer("while", 2)
def loop(g: Graph) -> Value | None:
    """A counter and one carry, which each turn changes without growing."""
    v = g.pick(lambda v: v.kind in ("f32", "i32", "i8"))
    if v is None:
        return None
    turns, zero, one, other = (
        g.scalar(int(g.rng.integers(0, 4)), "i32"),
        *_counter(g),
        partner(g, v),
    )
    i, x, j, y, c = (g.name() for _ in range(5))
    test = (
        f"{{ ^bb0({i}: tensor<i32>, {x}: {v.type}): {c} = stablehlo.compare LT, {i}, {turns.name} :"
        f' (tensor<i32>, tensor<i32>) -> tensor<i1> "stablehlo.return"({c}) : (tensor<i1>) -> () }}'
    )
    name = g.choose(["maximum", "minimum", "add"] if v.is_float else ["add", "xor", "maximum"])
    step = replace(v, name=y)
    inner = Graph(g.rng, g.prefix, count=g.count)
    inner.rounds = g.rounds
    changed = inner.like(name, step, other, most=v.most + other.most, step=min(v.step, other.step))
    if v.is_float and name == "add":
        changed = inner.settle(changed)
    known = max(v.most, other.most, changed.most), min(v.step, other.step, changed.step)
    following = inner.like("add", Value(j, (), "i32"), one)
    g.count = inner.count
    lines = "\n".join(inner.lines)
    turn = (
        f"{{ ^bb0({j}: tensor<i32>, {y}: {v.type}): {lines}\n"
        f' "stablehlo.return"({following.name}, {changed.name}) : (tensor<i32>, {v.type}) -> () }}'
    )
    both = g.name()
    g.lines.append(
        f'{both}:2 = "stablehlo.while"({zero.name}, {v.name}) ({test}, {turn})'
        f" : (tensor<i32>, {v.type}) -> (tensor<i32>, {v.type})"
    )
    g.read |= {v.name, other.name}
    return Value(f"{both}#1", v.shape, v.kind, *known)


def _counter(g: Graph) -> tuple[Value, Value]:
    return g.scalar(0, "i32"), g.scalar(1, "i32")


@drawer("case, if", 2)
def branch(g: Graph) -> Value | None:
    """One of two changes, chosen by a number of the data."""
    v = g.pick(lambda v: v.kind in ("f32", "i32", "i8", "bf16"))
    if v is None:
        return None
    on, flag = index(g, 3), g.pick(lambda u: u.kind == "i1" and u.size == 1)
    if flag is not None and g.chance(0.5):
        on = g.moved("reshape", flag, ())
    branches, other = [], partner(g, v)
    for name in g.choose([("negate", "abs"), ("abs", "maximum"), ("maximum", "minimum")]):
        out = g.name()
        given = f"{v.name}, {other.name}" if name.startswith("m") else v.name
        branches.append(
            f"{{ {out} = stablehlo.{name} {given} : {v.type}"
            f' "stablehlo.return"({out}) : ({v.type}) -> () }}'
        )
    known = max(v.most, other.most), min(v.step, other.step)
    g.read |= {v.name, other.name}
    name, inside = "if" if on.kind == "i1" else "case", ", ".join(branches)
    return g.op(name, [on], v.shape, v.kind, *known, regions=inside)


@drawer("select_and_scatter", 1)
def select_and_scatter(g: Graph) -> Value | None:
    """The gradient of a pool of two along the last axis."""
    v = g.pick(lambda v: v.kind == "f32" and bool(v.shape) and v.shape[-1] % 2 == 0)
    if v is None:
        return None
    rank = len(v.shape)
    shape = [*v.shape[:-1], v.shape[-1] // 2]
    window = [1] * (rank - 1) + [2]
    zeros, ones = ints([0] * rank), ints([1] * rank)
    cut = f"start_indices = {zeros}, limit_indices = {ints(shape)}, strides = {ones}"
    source = g.moved("slice", partner(g, v), shape, cut)
    a, b, c, one = g.name(), g.name(), g.name(), "tensor<f32>"
    inside = (
        f"{{ ^bb0({a}: {one}, {b}: {one}): {c} = stablehlo.compare GE, {a}, {b} :"
        f' ({one}, {one}) -> tensor<i1> "stablehlo.return"({c}) : (tensor<i1>) -> () }}'
    )
    known = (
        f"window_dimensions = {ints(window)}, window_strides = {ints(window)},"
        f" padding = dense<0> : tensor<{rank}x2xi64>"
    )
    regions = f"{inside}, {body(g, 'add', 'f32')}"
    most, operands = source.most, [v, source, g.scalar(0, "f32")]
    return g.op("select_and_scatter", operands, v.shape, "f32", most, source.step, known, regions)
