"""TFLite's products, and its pools, as ONNX's."""

from collections.abc import Mapping
from typing import Any

from jq.frontends.tflite import moves
from jq.frontends.tflite.graph import Graph
from jq.frontends.tflite.moves import NCHW


def _window(o: Mapping[str, Any], axes: str = "hw") -> dict[str, Any]:
    found: dict[str, Any] = {"strides": [o.get(f"stride_{a}", 1) for a in axes]}
    return found | {"auto_pad": "VALID" if o.get("padding", 0) else "SAME_UPPER"}


def conv(order: list[int], g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """A convolution by filters whose axes are brought to OIHW by `order`."""
    axes, last = "dhw"[5 - len(order) :], len(order) - 1
    groups = g.shape(x[0])[last] // max(1, g.shape(x[1])[order[1]])
    given = [g.real(x[0], [0, last, *range(1, last)]), g.real(x[1], order)]
    spread = [o.get(f"dilation_{a}", 1) for a in axes]
    made = g.add("Conv", given, group=groups, dilations=spread, **_window(o, axes))
    return moves.image(g, made, *g.bias(x[2:3], x[0], x[1]), rank=last + 1)


def transpose_conv(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    stride = [o.get("stride_h", 1), o.get("stride_w", 1)]
    sizes = zip(g.shape(x[2])[1:3], stride, g.shape(x[1])[1:3], g.shape(y)[1:3], strict=True)
    extra = [(n - 1) * s + k - out for n, s, k, out in sizes]
    total = [max(0, e) for e in extra]
    pads = [t // 2 for t in total] + [t - t // 2 for t in total]
    given = [g.real(x[2], NCHW), g.real(x[1], [3, 0, 1, 2])]
    more = [max(0, -e) for e in extra]
    made = g.add("ConvTranspose", given, strides=stride, pads=pads, output_padding=more)
    return moves.image(g, made, *g.bias(x[3:4], x[2], x[1]))


def fully_connected(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """A product by rows, in any shape: `read_graph` puts the result's behind the codes."""
    if o.get("weights_format", 0):
        raise g.lacking("a shuffled weight")
    value, terms = g.real(x[0]), g.shape(x[1])[1]
    if g.shape(x[0])[-1:] != [terms]:
        value = g.add("Reshape", [value, g.constant([-1, terms], "i8")])
    made = g.add("MatMul", [value, g.real(x[1], [1, 0])], domain=g.domain(y))
    for bias in g.bias(x[2:3], x[0], x[1]):
        made = g.add("Add", [made, bias])
    return str(made)


def batch_matmul(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """BATCH_MATMUL, which XNNPACK takes by weights around 0."""
    given, scales = [], g.scales(x[1])
    weights = g.array(x[1]) is not None and not (scales and scales[1].any())
    for i, key in zip(x, ("adj_x", "adj_y"), strict=False):
        axes = list(range(len(g.shape(i))))
        swapped = [*axes[:-2], axes[-1], axes[-2]]
        given.append(g.real(i, swapped) if o.get(key) else g.real(i))
    if weights or not g.domain(y):
        return str(g.add("MatMul", given))
    return str(g.add("BatchMatMul", given, domain=g.domain(y)))


def pool(kind: str, g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    window = [o.get("filter_height", 1), o.get("filter_width", 1)]
    how: dict[str, Any] = {"kernel_shape": window, **_window(o)}
    if kind == "AveragePool" and g.domain(y):
        return str(g.add(kind, [g.real(x[0])], domain=g.domain(y), **how))
    made = moves.image(g, g.add(kind, [g.real(x[0], NCHW)], **how))
    limited = g.domain(y) and o.get("activation")
    return g.dequantized(g.codes(made, y), y) if limited else made
