"""Steps that move numbers and compute none."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.frontends.onnx.drawn.graph import Graph, on, over


def _axis(g: Graph, shape: Any) -> int:
    """From the front or from the back."""
    axis = int(g.rng.integers(len(shape)))
    return axis - len(shape) * int(g.rng.integers(2))


@on()
def padded(g: Graph, x: str, shape: Any) -> None:
    mode = g.of("constant", "constant", "reflect", "edge")
    most = [min(n - 1, 2) if mode == "reflect" else 2 for n in shape]
    pads = [int(g.rng.integers(n + 1)) if a >= 1 else 0 for _ in "be" for a, n in enumerate(most)]
    fill = [g.fixed(g.rng.normal(), np.float32)] if mode == "constant" and g.chance(0.6) else []
    g.add("Pad", [x, g.fixed(pads, np.int64), *fill], mode=mode)


@on()
def sliced(g: Graph, x: str, shape: Any) -> None:
    axis = _axis(g, shape)
    if (size := shape[axis]) < 2:
        return
    ends = sorted(int(n) for n in g.rng.choice(size + 1, 2, replace=False))
    start, end, step = (*ends, g.of(1, 1, 2)) if g.chance(0.7) else (size - 1, -size - 1, -1)
    parts = [g.fixed([v], np.int64) for v in (start, end, axis, step)]
    g.add("Slice", [x, *parts])


@on()
def gathered(g: Graph, x: str, shape: Any) -> None:
    axis = _axis(g, shape)
    if g.chance(0.6):
        indices = g.rng.integers(-shape[axis], shape[axis], g.of((), (3,), (2, 2)))
        g.add("Gather", [x, g.fixed(indices, np.int64)], axis=axis)
    else:
        indices = g.rng.integers(-shape[axis], shape[axis], shape)
        g.add("GatherElements", [x, g.fixed(indices, np.int64)], axis=axis)


@on(2, 3, 4)
def turned(g: Graph, x: str, shape: Any) -> None:
    g.add("Transpose", [x], perm=[int(a) for a in g.rng.permutation(len(shape))])


@on(2, 3, 4)
def reshaped(g: Graph, x: str, shape: Any) -> None:
    to = g.of([0, -1], [0, 2, -1], [shape[0], -1, 2], [-1, shape[-1]])
    g.add("Reshape", [x, g.fixed(to, np.int64)])


@on(3, 4)
def reshaped_by_its_shape(g: Graph, x: str, shape: Any) -> None:
    """As PyTorch exports `x.view(x.shape[0], -1)`."""
    (found,) = g.add("Shape", [x]) or [""]
    (first,) = g.add("Gather", [found, g.fixed([0], np.int64)]) or [""]
    (sizes,) = g.add("Concat", [first, g.fixed([-1], np.int64)], axis=0) or [""]
    g.add("Reshape", [x, sizes])


@on()
def with_another_axis(g: Graph, x: str, shape: Any) -> None:
    if 1 in shape and g.chance(0.6):
        over(g, "Squeeze", x, [shape.index(1)], 13)
    elif len(shape) < 4:
        over(g, "Unsqueeze", x, [int(g.rng.integers(len(shape) + 1))], 13)


@on(2, 3, 4)
def flat(g: Graph, x: str, shape: Any) -> None:
    g.add("Flatten", [x], axis=int(g.of(1, 1, 2)))


@on()
def joined(g: Graph, x: str, shape: Any) -> None:
    axis = _axis(g, shape)
    others = [n for n, s in g.shapes.items() if s == shape]
    inputs = [x, g.of(*others)] + ([g.const(*shape)] if g.chance(0.3) else [])
    g.add("Concat", inputs, axis=axis)


@on()
def parted(g: Graph, x: str, shape: Any) -> None:
    axis = _axis(g, shape)
    if (size := shape[axis]) < 2:
        return
    first = int(g.rng.integers(1, size))
    if g.opset >= 13:
        g.add("Split", [x, g.fixed([first, size - first], np.int64)], 2, axis=axis)
    else:
        g.add("Split", [x], 2, axis=axis, split=[first, size - first])


@on()
def repeated(g: Graph, x: str, shape: Any) -> None:
    if g.chance(0.5):
        g.add("Tile", [x, g.fixed([g.of(1, 1, 2) for _ in shape], np.int64)])
    else:
        g.add("Expand", [x, g.fixed([g.of(2, 3) if n == 1 else n for n in shape], np.int64)])


@on()
def chosen(g: Graph, x: str, shape: Any) -> None:
    condition = g.fixed(g.rng.random(shape[-1:] if g.chance(0.5) else shape) < 0.5)
    other = g.of(*[n for n, s in g.shapes.items() if s == shape])
    pair = [x, other if g.chance(0.5) else g.const(shape[-1])]
    g.add("Where", [condition, *(pair if g.chance(0.5) else pair[::-1])])


@on()
def largest(g: Graph, x: str, shape: Any) -> None:
    axis = _axis(g, shape)
    count = g.fixed([int(g.rng.integers(1, shape[axis] + 1))], np.int64)
    g.add("TopK", [x, count], 2, axis=axis, largest=g.of(0, 1))
