"""Drawn float programs by XLA as the project uses it for a reference, and by NumPy: the same bits.

A third of them are graphs of any ops. The others are what XLA's CPU compiler has been wrong about:
sums of what is multiplied at many axes, sums of squares of a product of matrices, and tensors that
are written into with parts of themselves.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jq.ir.oracle.xla import XlaExecutable
from suites.differential.draw import axis_of, draw
from suites.differential.evaluate import difference
from suites.differential.graph import LARGEST, Graph, Value
from suites.differential.kinds import Kind
from suites.differential.modules import drawn, module_of
from suites.differential.movement import ints, other_shape
from suites.differential.numpy_values import by_numpy
from suites.differential.products import product
from suites.differential.regions import body, start
from suites.outcome import FAILED, RIGHT, WRONG, Outcome

FLOAT = Kind("float")
FEW = 8  # other ops around what is drawn for a purpose


@dataclass(frozen=True)
class Case:
    seed: int


def identify(case: Case) -> tuple[str, str]:
    return FAMILIES[case.seed % len(FAMILIES)].__name__, str(case.seed)


def judge(cases: Sequence[Case]) -> list[Outcome | None]:
    """The outcome of one case: a module of many would be one program to XLA."""
    logging.disable(logging.WARNING)
    (case,) = cases
    try:
        module = module_of([graph_of(case.seed)], 1)
        right = by_numpy(module.program, module.inputs)[0]
        found = XlaExecutable(module.program)(*module.inputs[0])
        said = difference({"NumPy": right, "XLA": found})
        return [Outcome(*identify(case), WRONG if said else RIGHT, said)]
    except Exception as error:
        said = f"{type(error).__name__}: {error}".partition("\n")[0][:300]
        return [Outcome(*identify(case), FAILED, said)]


def graph_of(seed: int) -> Graph:
    return FAMILIES[seed % len(FAMILIES)](seed)


def anything(seed: int) -> Graph:
    return drawn(seed, FLOAT)


def sums(seed: int) -> Graph:
    """Two tensors of up to 8 axes, which are broadcast to each other, multiplied and summed."""
    g = _graph(seed)
    shape = [g.choose((1, 2, 2, 3, 4, 8)) for _ in range(g.choose((2, 3, 4, 5, 6, 7, 7, 8)))]
    while math.prod(shape) > 1 << 15:
        shape[int(g.rng.integers(len(shape)))] = 1
    kind = g.choose(("f32", "f32", "f32", "bf16"))
    sides = [_spread(g, shape, kind) for _ in range(2)]
    v = g.fit(_times(g, *sides), most=8.0)
    if g.chance(0.3):
        v = g.fit(g.like(g.choose(("abs", "negate")), v), most=8.0)
    axes = sorted({axis_of(g, v) for _ in range(g.choose((1, 1, 1, 2)))})
    return _end(g, g.keep(_sum(g, v, axes)))


def squares(seed: int) -> Graph:
    """The length of every row of a product of matrices, or something like it."""
    g = _graph(seed)
    rows, inner, width = (
        g.choose((1, 7, 1000, 40_000)),
        g.choose((1, 2, 3, 5)),
        g.choose((1, 3, 4)),
    )
    x, w = g.input((rows, inner), "f32"), g.input((inner, width), "f32")
    turned = g.chance(0.5)  # W @ x, as under `vmap`
    shape = (width, rows) if turned else (rows, width)
    pair, ends = ((w, x), ([0], [1])) if turned else ((x, w), ([1], [0]))
    y = product(g, *pair, *ends, shape, inner)
    if g.chance(0.3):
        y = g.like("add", y, g.full(y, 1.0), most=y.most + 1)
    y = g.fit(y, 2.0**8, 2.0**8)
    y = _times(g, y, y if g.chance(0.7) else g.keep(g.input(shape, "f32")))
    if g.chance(0.3):
        y = g.like("add", y, y, most=2 * y.most)
    axis = int(turned) if rows < 64 and g.chance(0.2) else 1 - int(turned)
    return _end(g, g.keep(_sum(g, y, [axis])))


def overwritten(seed: int) -> Graph:
    """A tensor into which parts of itself are written, once or a few times."""
    g = _graph(seed)
    shape = [g.choose((1, 2, 3, 4, 8, 16)) for _ in range(g.choose((1, 2, 2, 3)))]
    kind = g.choose(("f32", "f32", "i32", "i8", "bf16"))
    base = g.keep(g.input(shape, kind))
    if g.chance(0.5):
        base = g.keep(g.like("negate", base))
    for _ in range(g.choose((1, 1, 2, 3))):
        if g.chance(0.4):
            base = g.keep(g.moved("reshape", base, other_shape(g, base.size)))
        if not base.shape:
            break
        base = g.keep(_write(g, base))
    if g.chance(0.7):
        base = g.moved("reshape", base, (1, *base.shape) if g.chance(0.5) else (base.size,))
    return _end(g, g.keep(base))


def _write(g: Graph, base: Value) -> Value:
    """`base` with a part of itself at another place."""
    part = base
    if g.chance(0.4):
        part = g.moved("reverse", part, part.shape, f"dimensions = {ints([axis_of(g, part)])}")
    if g.chance(0.2) and len(set(base.shape)) == 1 and len(base.shape) > 1:
        order = list(range(len(base.shape)))[::-1]
        part = g.moved("transpose", part, part.shape, f"permutation = {ints(order)}")
    sizes = [max(1, n - g.choose((0, 0, 1, 1, 2))) for n in base.shape]
    first = [int(g.rng.integers(n - k + 1)) for n, k in zip(base.shape, sizes, strict=True)]
    ends = [a + k for a, k in zip(first, sizes, strict=True)]
    known = f"start_indices = {ints(first)}, limit_indices = {ints(ends)},"
    part = g.moved("slice", part, sizes, f"{known} strides = {ints([1] * len(sizes))}")
    if g.chance(0.3):
        part = g.like("negate", part)
    at = [g.scalar(int(g.rng.integers(n)), "i32") for n in base.shape]
    if g.chance(0.3):
        at[0] = g.moved("reshape", g.input((1,), "i32"), ())
    return g.op(
        "dynamic_update_slice", [base, part, *at], base.shape, base.kind, base.most, base.step
    )


def _graph(seed: int) -> Graph:
    return Graph(np.random.default_rng(seed), f"g{seed}")


def _end(g: Graph, v: Value) -> Graph:
    """Other ops may read what is there."""
    if v.size <= LARGEST and g.chance(0.5):
        draw(g, len(g.lines) + FEW)
    return g


def _spread(g: Graph, shape: Sequence[int], kind: str) -> Value:
    """A tensor of this shape, some of whose axes may be broadcast."""
    if g.chance(0.4):
        return g.input(shape, kind)
    kept = [a for a in range(len(shape)) if g.chance(0.7)]
    own = g.input([shape[a] for a in kept], kind)
    known = f"broadcast_dimensions = {ints(kept)}"
    return g.op("broadcast_in_dim", [own], shape, kind, own.most, own.step, known)


def _times(g: Graph, a: Value, b: Value) -> Value:
    return g.like("multiply", a, b, most=a.most * b.most, step=a.step * b.step)


def _sum(g: Graph, v: Value, axes: Sequence[int]) -> Value:
    shape = [n for a, n in enumerate(v.shape) if a not in axes]
    terms = math.prod(v.shape[a] for a in axes)
    if v.kind == "bf16":  # has room for a few
        v = g.fit(v, 2.0**8 / (2 * terms), 1.0)
    known, inside = f"dimensions = {ints(list(axes))}", body(g, "add", v.kind)
    begin = start(g, "add", v.kind)
    return g.op("reduce", [v, begin], shape, v.kind, v.most * terms, v.step, known, inside)


FAMILIES: tuple[Callable[[int], Graph], ...] = (
    *(anything, sums, squares),
    *(overwritten, sums, overwritten),
)
