"""Steps of images: convolutions, pools, resizing, normalization."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.frontends.onnx.drawn.graph import Graph, on


def _window(g: Graph, rank: int, kernel: list[int]) -> dict[str, Any]:
    """Attributes that say where windows lie."""
    found: dict[str, Any] = {}
    if g.chance(0.25):
        found["strides"] = [2] * rank
    if g.chance(0.2):
        return found | {"auto_pad": g.of("SAME_UPPER", "SAME_LOWER", "VALID")}
    if g.chance(0.7):
        return found | {"pads": [k // 2 for k in kernel] * 2}
    return found | {"pads": [int(g.rng.integers(k)) for k in kernel * 2]}


@on(3, 4)
def convolution(g: Graph, x: str, shape: Any) -> None:
    rank = len(shape) - 2
    kernel = [int(g.of(1, 3))] * rank if g.chance(0.8) else [g.of(1, 2, 3) for _ in range(rank)]
    group, out = (1, g.of(4, 6)) if g.chance(0.7) else (shape[1], shape[1] * g.of(1, 1, 2))
    if group == 1 and g.chance(0.2) and shape[1] % 2 == 0:
        group, out = 2, 4
    inputs = [x, g.const(out, shape[1] // group, *kernel)]
    inputs += [g.const(out)] if g.chance(0.7) else []
    window = _window(g, rank, kernel)
    if "auto_pad" not in window and g.chance(0.15):
        window["dilations"] = [2] * rank
    g.add("Conv", inputs, group=group, **window)


@on(3, 4)
def transposed(g: Graph, x: str, shape: Any) -> None:
    rank, group = len(shape) - 2, 2 if shape[1] % 2 == 0 and g.chance(0.3) else 1
    side, stride = g.of(1, 2, 3), g.of(1, 2)
    inputs = [x, g.const(shape[1], g.of(2, 3), *[side] * rank)]
    inputs += [g.const(g.arrays[inputs[1]].shape[1] * group)] if g.chance(0.6) else []
    extra = {"output_padding": [1] * rank} if stride == 2 and g.chance(0.3) else {}
    pads = [side // 2] * (2 * rank) if g.chance(0.5) else [0] * (2 * rank)
    g.add("ConvTranspose", inputs, strides=[stride] * rank, pads=pads, group=group, **extra)


@on(3, 4)
def pool(g: Graph, x: str, shape: Any) -> None:
    op, rank = g.of("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"), len(shape) - 2
    kernel = [int(g.of(2, 3))] * rank
    window = _window(g, rank, kernel)
    if op == "AveragePool" and g.chance(0.3):
        window["count_include_pad"] = 1
    if op != "LpPool" or g.opset >= 18:
        window |= {"ceil_mode": 1} if g.chance(0.2) and "auto_pad" not in window else {}
    if op == "MaxPool" and g.chance(0.2) and "auto_pad" not in window:
        window["dilations"] = [2] * rank
    g.add(op, [x], kernel_shape=kernel, **window)


@on(3, 4)
def whole_pool(g: Graph, x: str, shape: Any) -> None:
    last = "GlobalLpPool" if g.opset < 22 else "GlobalMaxPool"  # which ONNX Runtime has no later
    op = g.of("GlobalAveragePool", "GlobalAveragePool", "GlobalMaxPool", last)
    (y,) = g.add(op, [x]) or [""]
    if y and g.chance(0.7):
        g.add("Flatten", [y])


@on(4)
def resize(g: Graph, x: str, shape: Any) -> None:
    mode = g.of("nearest", "nearest", "linear", "cubic")
    how: dict[str, Any] = {"mode": mode}
    how["coordinate_transformation_mode"] = g.of("asymmetric", "half_pixel", "align_corners")
    if mode == "nearest":
        how["nearest_mode"] = g.of("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    roi = g.fixed([], np.float32) if g.opset < 13 else ""
    if g.chance(0.6):
        scales = [1, 1, *[float(g.of(0.5, 1.5, 2)) for _ in range(2)]]
        g.add("Resize", [x, roi, g.fixed(scales, np.float32)], **how)
    else:
        sizes = [*shape[:2], *[int(g.rng.integers(1, 2 * n + 1)) for n in shape[2:]]]
        none = g.fixed([], np.float32) if g.opset < 13 else ""
        g.add("Resize", [x, roi, none, g.fixed(sizes, np.int64)], **how)


@on(4)
def between_depth_and_space(g: Graph, x: str, shape: Any) -> None:
    if shape[2] % 2 == shape[3] % 2 == 0 and g.chance(0.5):
        g.add("SpaceToDepth", [x], blocksize=2)
    elif shape[1] % 4 == 0:
        g.add("DepthToSpace", [x], blocksize=2, mode=g.of("DCR", "CRD"))


@on(3, 4)
def normalized(g: Graph, x: str, shape: Any) -> None:
    scale = [g.const(shape[1]) for _ in range(3)]
    if g.chance(0.5):
        variance = g.fixed(g.rng.uniform(0.5, 2, shape[1]).astype(np.float32))
        g.add("BatchNormalization", [x, *scale, variance])
    elif g.chance(0.6):
        g.add("InstanceNormalization", [x, *scale[:2]])
    elif g.opset >= 21 and shape[1] % 2 == 0:
        g.add("GroupNormalization", [x, *scale[:2]], num_groups=2)
