"""slice and dynamic_slice of a dequantize: each part is sliced alike.

A dynamic slice along the leading axis is how a layer reads its weight in a `scan`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jq.ir import Program, dtype_of, ir, shape_of
from jq.ir.build import i64_array, integers, like
from jq.ir.markers import Marker
from jq.ops.base import Axes, Movement
from jq.ops.integer import OPS
from jq.ops.movement import leading, plain, rebuilt


def sliceable(marker: Marker, sliced: Sequence[int]) -> bool:
    """Whether cutting these axes is the same cut in every part (or none, where one scale rules)."""
    shared, enc = leading(marker), marker.encoding
    return all(a < shared or (plain(marker) and enc.block[a] in (0, 1)) for a in sliced)


def movable(marker: Marker, sliced: Sequence[int]) -> dict[str, ir.Value]:
    """The parts that a cut leaves true: the sum of a block is not that of a piece of it."""
    cut_blocks = any(marker.encoding.block[a] != 1 for a in sliced)
    return {k: v for k, v in marker.parts.items() if k != "sum" or not cut_blocks}


class Slice(Movement):
    op = "slice"

    def back(self, op: Any, axes: Axes) -> Axes:
        return axes

    def sink(self, program: Program, op: Any, marker: Marker) -> ir.Value | None:
        start, limit, stride = (
            integers(op, key) for key in ("start_indices", "limit_indices", "strides")
        )
        before, after = marker.encoding.shape, shape_of(op.results[0])
        sliced = [a for a, n in enumerate(before) if after[a] != n]
        if not sliceable(marker, sliced):
            return None

        def cut(part: ir.Value) -> ir.Value:
            shape = shape_of(part)
            own = [a in sliced and shape[a] == before[a] for a in range(len(shape))]
            lo = [start[a] if own[a] else 0 for a in range(len(shape))]
            hi = [limit[a] if own[a] else n for a, n in enumerate(shape)]
            by = [stride[a] if own[a] else 1 for a in range(len(shape))]
            size = [-(-(h - low) // s) for low, h, s in zip(lo, hi, by, strict=True)]
            return like(
                op,
                [part],
                size,
                dtype_of(part),
                start_indices=i64_array(lo),
                limit_indices=i64_array(hi),
                strides=i64_array(by),
            )

        parts = {k: cut(v) for k, v in movable(marker, sliced).items()}
        return rebuilt(program, marker, after, marker.encoding.block, parts)


class DynamicSlice(Movement):
    op = "dynamic_slice"

    def back(self, op: Any, axes: Axes) -> Axes:
        return axes

    def sink(self, program: Program, op: Any, marker: Marker) -> ir.Value | None:
        before, after = marker.encoding.shape, shape_of(op.results[0])
        sliced = [a for a, n in enumerate(before) if after[a] != n]
        if not sliceable(marker, sliced):
            return None
        starts = list(op.operands)[1:]
        zero = OPS.constant(_zero(starts))

        def cut(part: ir.Value) -> ir.Value:
            shape = shape_of(part)
            own = [a in sliced and shape[a] == before[a] for a in range(len(shape))]
            at = [starts[a] if own[a] else zero for a in range(len(shape))]
            size = [after[a] if own[a] else n for a, n in enumerate(shape)]
            return like(op, [part, *at], size, dtype_of(part), slice_sizes=i64_array(size))

        parts = {k: cut(v) for k, v in movable(marker, sliced).items()}
        return rebuilt(program, marker, after, marker.encoding.block, parts)


def _zero(starts: Sequence[ir.Value]) -> Any:
    import numpy as np

    return np.zeros((), dtype_of(starts[0]) if starts else np.int32)
