"""TFLite's operators that move or choose elements, as ONNX's."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import helper

from jq.frontends.tflite.graph import Graph

NCHW = [0, 3, 1, 2]


def shaped(g: Graph, value: str, y: int) -> str:
    """A value in the shape of a tensor."""
    return str(g.add("Reshape", [value, g.constant(g.shape(y), "i8")]))


def pad(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """PAD, PADV2."""
    pads = g.constant(g.known(x[1]).reshape(-1, 2).T.reshape(-1), "i8")
    return str(g.add("Pad", [g.real(x[0]), pads, *(g.real(i) for i in x[2:3])]))


def mirror_pad(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """MIRROR_PAD, whose border is repeated (mode 1) or not: chosen elements, axis by axis."""
    value = g.real(x[0])
    how: Any = "symmetric" if o.get("mode") else "reflect"
    for axis, pair in enumerate(g.known(x[1])):
        if pair.any():
            index = np.pad(np.arange(g.shape(x[0])[axis]), pair, how)
            value = str(g.add("Gather", [value, g.constant(index, "i8")], axis=axis))
    return value


def space_to_batch_nd(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """SPACE_TO_BATCH_ND: the places within a block come in front of the batch."""
    block, (n, *sizes) = g.known(x[1]).tolist(), g.shape(x[0])
    pads, k = g.known(x[2]), len(block)
    padded = [*zip(sizes, block, pads.sum(1), strict=False)]
    if any((s + p) % b for s, b, p in padded):
        raise g.damaged(f"blocks of {block} do not divide what SPACE_TO_BATCH_ND pads at {g.op}")
    sides = np.pad(pads, [(1, len(sizes) - k), (0, 0)]).T.reshape(-1)
    value = g.add("Pad", [g.real(x[0]), g.constant(sides, "i8")]) if pads.any() else g.real(x[0])
    parts = [v for s, b, p in padded for v in ((s + p) // b, b)]
    value = g.add("Reshape", [value, g.constant([n, *parts, *sizes[k:]], "i8")])
    inside, rest = range(2, 2 * k + 1, 2), range(2 * k + 1, 2 * k + 1 + len(sizes) - k)
    order = [*inside, 0, *range(1, 2 * k, 2), *rest]
    return shaped(g, g.add("Transpose", [value], perm=order), y)


def batch_to_space_nd(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """BATCH_TO_SPACE_ND, and its crops."""
    block, sizes = g.known(x[1]).tolist(), g.shape(x[0])[1:]
    crops, k = g.known(x[2]), len(block)
    value = g.add("Reshape", [g.real(x[0]), g.constant([*block, -1, *sizes], "i8")])
    inside = (a for i in range(k) for a in (k + 1 + i, i))
    order = [k, *inside, *range(2 * k + 1, k + 1 + len(sizes))]
    whole = [s * b for s, b in zip(sizes, block, strict=False)]
    value = g.add("Transpose", [value], perm=order)
    value = g.add("Reshape", [value, g.constant([-1, *whole, *sizes[k:]], "i8")])
    ends = [w - e for w, e in zip(whole, crops[:, 1].tolist(), strict=True)]
    rows = (crops[:, 0], ends, range(1, k + 1))
    return str(g.add("Slice", [value, *(g.constant(np.array(row), "i8") for row in rows)]))


def slice_(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """SLICE."""
    start, size = (g.known(i).reshape(-1).astype(int) for i in x[1:3])
    stop = np.where(size < 0, np.array(g.shape(x[0])), start + size)
    return str(g.add("Slice", [g.real(x[0]), g.constant(start, "i8"), g.constant(stop, "i8")]))


def strided_slice(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """STRIDED_SLICE."""
    if o.get("ellipsis_mask") or o.get("new_axis_mask"):
        raise g.lacking("a slice with new axes")
    start, stop, step = (g.known(i).reshape(-1).astype(int).tolist() for i in x[1:4])
    for a, n in enumerate(g.shape(x[0])[: len(start)]):
        bit, back = 1 << a, step[a] < 0
        if o.get("begin_mask", 0) & bit:
            start[a] = n - 1 if back else 0
        if o.get("end_mask", 0) & bit:
            stop[a] = -n - 1 if back else n
        if o.get("shrink_axis_mask", 0) & bit:
            stop[a], step[a] = start[a] + 1 or n, 1
    axes = list(range(len(start)))
    given = [g.constant(v, "i8") for v in (start, stop, axes, step)]
    return shaped(g, g.add("Slice", [g.real(x[0]), *given]), y)


def reverse_v2(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """REVERSE_V2."""
    axes = g.known(x[1]).reshape(-1).tolist()
    start, stop, step = (g.constant([v] * len(axes), "i8") for v in (-1, -(1 << 40), -1))
    return str(g.add("Slice", [g.real(x[0]), start, stop, g.constant(axes, "i8"), step]))


def gather(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """GATHER."""
    if o.get("batch_dims"):
        raise g.lacking("a gather with batches")
    return str(g.add("Gather", [g.real(x[0]), g.raw(x[1])], axis=o.get("axis", 0)))


def gather_nd(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """GATHER_ND."""
    return str(g.add("GatherND", [g.real(x[0]), g.add("Cast", [g.raw(x[1])], to=7)]))  # int64


def one_hot(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """ONE_HOT: an index beyond its ends has none."""
    shape, axis = g.shape(y), o.get("axis", 0) % len(g.shape(y))
    places = np.arange(shape[axis]).reshape(-1, *[1] * (len(shape) - axis - 1))
    index = g.add("Unsqueeze", [g.raw(x[0]), g.constant([axis], "i8")])
    here = g.add("Equal", [index, g.constant(places, g.dtype(x[0]))])
    return str(g.add("Where", [here, *map(g.real, x[2:4])]))


def scatter_nd(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """SCATTER_ND: updates of one place are added, codes as they are."""
    given = g.constant(np.zeros(g.shape(y)), g.dtype(y)), g.add("Cast", [g.raw(x[0])], to=7)
    return g.dequantized(g.add("ScatterND", [*given, g.raw(x[1])], reduction="add"), y)


def select(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """SELECT: one condition may choose whole rows."""
    shape = g.shape(x[0])
    rows = g.constant([*shape, *[1] * (len(g.shape(y)) - len(shape))], "i8")
    return str(g.add("Where", [g.add("Reshape", [g.real(x[0]), rows]), *map(g.real, x[1:])]))


def image(g: Graph, value: str, *bias: str, rank: int = 4) -> str:
    """An image with channels last. What is added and limited comes behind it, so that no transpose
    stands between a product and its codes."""
    value = g.add("Transpose", [value], perm=[0, *range(2, rank), 1])
    for added in bias:
        value = g.add("Add", [value, added])
    return value


def blocks(kind: str, g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """SPACE_TO_DEPTH, DEPTH_TO_SPACE."""
    return image(g, g.add(kind, [g.real(x[0], NCHW)], blocksize=o.get("block_size", 1)))


def pack(g: Graph, x: list[int], y: int, o: Mapping[str, Any]) -> str:
    """PACK."""
    shape, axis = g.shape(y), o.get("axis", 0)
    shape[axis] = 1
    one = g.constant(shape, "i8")
    return str(g.add("Concat", [g.add("Reshape", [g.real(i), one]) for i in x], axis=axis))


def largest(g: Graph, x: list[int], outputs: list[int], o: Mapping[str, Any]) -> None:
    """TOPK_V2: codes are in the order of their numbers, and kernels know no scales of theirs."""
    given = [g.raw(x[0]), g.constant(g.known(x[1]).reshape(1), "i8")]
    found, places = g.add("TopK", given, 2, overload=g.domain(outputs[0]))
    g.store(outputs[0], found)
    to = helper.np_dtype_to_tensor_dtype(g.dtype(outputs[1]))
    g.store(outputs[1], g.add("Cast", [places], to=to))


def split(g: Graph, x: list[int], outputs: list[int], o: Mapping[str, Any]) -> None:
    """SPLIT (axis, tensor), SPLIT_V (tensor, sizes, axis) and UNPACK, whose results state sizes."""
    source, *at = (x[1], x[0]) if len(x) == 2 else (x[0], *x[2:])
    axis = int(g.known(at[0]).reshape(())) if at else o.get("axis", 0)
    sizes = g.constant([g.shape(y)[axis] if at else 1 for y in outputs], "i8")
    parts = g.add("Split", [g.real(source), sizes], len(outputs), axis=axis)
    for i, part in zip(outputs, [parts] if len(outputs) == 1 else parts, strict=True):
        g.put(i, shaped(g, part, i))
