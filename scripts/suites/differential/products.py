"""Products and convolutions, with weights and of two values."""

from __future__ import annotations

import math

from suites.differential.draw import axis_of, back, drawer, has_axis, is_row
from suites.differential.graph import LARGEST, SIZES, Graph, Value
from suites.differential.movement import ints


def operand(g: Graph, v: Value, terms: int) -> Value:
    """A value as a product with codes may read it: the sum of all terms is exact in float32."""
    most = 8.0 if v.kind == "bf16" else 16.0
    return g.fit(v, 2.0 ** int(math.log2(2.0**24 / (-g.codes.low * max(terms, 1)))), most)


@drawer("dot_general", 9)
def dot(g: Graph) -> Value | None:
    """With a weight, along any axis; several axes at times."""
    v = g.pick(lambda v: is_row(v) and max(v.shape) <= 64)
    if v is None:
        return None
    axes = [axis_of(g, v) if g.chance(0.3) else len(v.shape) - 1]
    if len(v.shape) > 1 and g.chance(0.1):
        axes = sorted({axes[0], axis_of(g, v)})
    summed = [v.shape[a] for a in axes]
    free = [n for a, n in enumerate(v.shape) if a not in axes]
    width = g.choose([n for n in SIZES if n * math.prod(free) <= LARGEST] or [1])
    turned = g.chance(0.3)
    shape = (width, *summed) if turned else (*summed, width)
    w = g.weight(shape, v.kind, 1 if turned else 0)
    theirs = range(1, 1 + len(axes)) if turned else range(len(axes))
    x = operand(g, v, math.prod(summed))
    return back(g, product(g, x, w, axes, list(theirs), (*free, width), math.prod(summed)))


def product(
    g: Graph,
    a: Value,
    b: Value,
    left: list[int],
    right: list[int],
    shape: tuple[int, ...],
    terms: int,
    batch: int = 0,
) -> Value:
    """A sum of so many products, in float32; the first `batch` axes are common."""
    common = list(range(batch))
    numbers = (
        f"#stablehlo.dot<lhs_batching_dimensions = {common}, rhs_batching_dimensions = {common},"
        f" lhs_contracting_dimensions = {left}, rhs_contracting_dimensions = {right}>"
    )
    known = f"dot_dimension_numbers = {numbers}"
    most, step = a.most * b.most * terms, a.step * b.step
    return g.op("dot_general", [a, b], shape, "f32", most, step, known)


@drawer("product of two values", 3)
def scores(g: Graph) -> Value | None:
    """As in attention: rows with rows, for each element of the axes in front."""
    v = g.pick(lambda v: is_row(v) and len(v.shape) >= 2 and v.shape[-1] <= 64)
    if v is None:
        return None
    fits = [u for u in g.values if u.kind == v.kind and u.shape == v.shape]
    other, batch, terms = g.choose(fits), len(v.shape) - 2, v.shape[-1]
    if math.prod(v.shape[:-1]) * other.shape[-2] > LARGEST:
        return None
    room = 2.0 ** int(math.log2(2.0**24 / terms) / 2)
    a, b = g.fit(v, room, 8.0), g.fit(other, room, 8.0)
    shape = (*v.shape[:-1], other.shape[-2])
    return back(g, product(g, a, b, [batch + 1], [batch + 1], shape, terms, batch))


@drawer("convolution", 7)
def convolution(g: Graph) -> Value | None:
    """Convolution of one or two axes; strides, padding, dilation of either side, groups."""
    v = g.pick(lambda v: v.is_float and 0 < v.size <= 512 and bool(v.shape))
    if v is None:
        return None
    spatial = g.choose((1, 1, 2, 2, 2))
    if len(v.shape) != spatial + 2:
        v = g.moved("reshape", v, _image(g, v.size, spatial))
    batch, *image, channels = v.shape
    groups = g.choose([n for n in range(1, channels + 1) if channels % n == 0])
    groups = groups if g.chance(0.4) else 1
    out = groups * g.choose((1, 1, 2, 3) if groups > 1 else (1, 2, 3, 8))
    window = [g.choose((1, 2, 3, 3)) for _ in image]
    terms = math.prod(window) * channels // groups
    if terms > 128:
        return None
    stride = [g.choose((1, 1, 2)) for _ in image]
    grown = [g.choose((1, 1, 1, 2)) for _ in image]
    wide = [g.choose((1, 1, 1, 2)) for _ in image]
    edges = [[g.choose((0, 1, 1, 2)) for _ in range(2)] for _ in image]
    sizes = [
        ((n - 1) * d + 1 + sum(edge) - ((k - 1) * w + 1)) // s + 1
        for n, d, edge, k, w, s in zip(image, grown, edges, window, wide, stride, strict=True)
    ]
    if min(sizes) < 1 or batch * math.prod(sizes) * out > LARGEST:
        return None
    w = g.weight((*window, channels // groups, out), v.kind, spatial)
    x = operand(g, v, terms)
    names = [str(i) for i in range(spatial)]
    layout = f"[b, {', '.join(names)}, f]x[{', '.join(names)}, i, o]->[b, {', '.join(names)}, f]"
    turned = ", ".join(["true" if g.chance(0.05) else "false"] * spatial)
    known = (
        f"batch_group_count = 1 : i64, feature_group_count = {groups} : i64,"
        f" dimension_numbers = #stablehlo.conv<{layout}>, window_strides = {ints(stride)},"
        f" padding = dense<{edges}> : tensor<{spatial}x2xi64>, lhs_dilation = {ints(grown)},"
        f" rhs_dilation = {ints(wide)}, window_reversal = array<i1: {turned}>"
    )
    shape = (batch, *sizes, out)
    most, step = x.most * w.most * terms, x.step * w.step
    return back(g, g.op("convolution", [x, w], shape, "f32", most, step, known))


def _image(g: Graph, size: int, spatial: int) -> tuple[int, ...]:
    """A batch of one, and the axes between it and the channels as square as they come."""
    shape, left, p = [1] * (spatial + 1), size, 2
    while left > 1:
        while left % p == 0:
            shape[int(g.rng.integers(len(shape)))] *= p
            left //= p
        p += 1
    return (1, *shape)


@drawer("integer product", 2)
def integers(g: Graph) -> Value | None:
    """Product of codes that the model has computed itself."""
    v = g.pick(lambda v: v.kind == "i8" and has_axis(v) and len(v.shape) >= 2)
    if v is None:
        return None
    rows, batch = v.shape[-2], len(v.shape) - 2
    if math.prod(v.shape[:-1]) * rows > LARGEST:
        return None
    known = list(range(batch))
    numbers = (
        f"#stablehlo.dot<lhs_batching_dimensions = {known}, rhs_batching_dimensions = {known},"
        f" lhs_contracting_dimensions = [{batch + 1}], rhs_contracting_dimensions = [{batch + 1}]>"
    )
    shape = (*v.shape[:-1], rows)
    return g.op(
        "dot_general", [v, v], shape, "i32", attributes=f"dot_dimension_numbers = {numbers}"
    )
