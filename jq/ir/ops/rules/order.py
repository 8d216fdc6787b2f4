"""Sorting: codes with one scale have the order of their numbers, and are sorted instead.

    sort (dequantize %x)   ->  dequantize (sort %x)
    top_k (dequantize %x)  ->  dequantize (slice (sort %x))

Those are the values of top_k; its indices stay as they are. NaN has no code of its own."""

from collections.abc import Sequence

import numpy as np

from jq.ir import OPS, Op, Program, dense_array, dtype_of, ir, maker, shape_of, tensor_type
from jq.ir.build import create, direction_of, fill, i64_attr, integer
from jq.ir.markers import Marker
from jq.ir.ops.base import OpRule
from jq.ir.ops.lattice import FLOAT, Encoded, State
from jq.ir.ops.movement import rebuilt

# JAX orders numbers with one zero and one NaN.
CANONICAL = ("stablehlo.select", "stablehlo.compare")


class Sort(OpRule):
    op = "sort"

    def applies(self, op: Op) -> bool:
        return len(op.operands) == 1 and direction(op) is not None

    def axis(self, op: Op) -> int:
        return integer(op, "dimension")

    def of_one_type(self, op: Op) -> tuple[int, ...]:
        return tuple(range(len(op.operands)))

    def encoded(self, program: Program, op: Op, states: Sequence[State]) -> State:
        state = states[0]
        if not isinstance(state, Encoded):
            return state
        alike = max(state.encoding.block, default=0) <= 1
        alike = alike and state.encoding.grid[self.axis(op)] == 1
        return self.ordered(op, state) if alike else FLOAT

    def ordered(self, op: Op, state: Encoded) -> State:
        return state

    def carry(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        marker, how = markers[0], direction(op)
        if marker is None or how is None:
            return None
        return _moved(program, marker, sorted_codes(marker.parts["codes"], self.axis(op), how))


class TopK(Sort):
    """The largest of the last axis, in falling order."""

    op = "chlo.top_k"

    def applies(self, op: Op) -> bool:
        return True

    def of_one_type(self, op: Op) -> tuple[int, ...]:
        return ()  # it is written as a sort and a slice

    def axis(self, op: Op) -> int:
        return len(shape_of(op.operands[0])) - 1

    def ordered(self, op: Op, state: Encoded) -> State:
        shape = shape_of(op.results[0])
        return state.of_shape(shape, [a for a, n in enumerate(state.encoding.grid) if n > 1])

    def carry(self, program: Program, op: Op, markers: Sequence[Marker | None]) -> ir.Value | None:
        if (marker := markers[0]) is None:
            return None
        codes = sorted_codes(marker.parts["codes"], self.axis(op), "GT")
        shape = shape_of(op.results[0])
        return _moved(program, marker, OPS.slice(codes, [0] * len(shape), shape))


def direction(op: Op) -> str | None:
    """`LT` or `GT` for a sort by the numbers themselves; None for any other order."""
    block = op.regions[0].blocks[0]
    compare = maker(list(block.operations)[-1].operands[0], "stablehlo.compare")
    if compare is None:
        return None
    how = direction_of(compare)
    pairs = zip(compare.operands, block.arguments, strict=False)
    return how if how in ("LT", "GT") and all(_is(v, x) for v, x in pairs) else None


def _is(value: ir.Value, x: ir.Value) -> bool:
    """True if a value is `x`, but for which zero and which NaN it is."""
    waiting, seen = [value], {x}
    while waiting:
        if (value := waiting.pop()) in seen:
            continue
        seen.add(value)
        if (op := maker(value)) is None:
            return False
        if op.operation.name in CANONICAL:
            waiting += op.operands
            continue
        array = dense_array(value) if op.operation.name == "stablehlo.constant" else None
        if array is None or np.nan_to_num(array.astype(np.float32)).any():
            return False
    return True


def sorted_codes(codes: ir.Value, axis: int, how: str) -> ir.Value:
    """Integers in order along an axis, at the current insertion point."""
    said = {"dimension": i64_attr(axis), "is_stable": ir.BoolAttr.get(False)}
    made = create("stablehlo.sort", codes.type, codes, regions=1, **said)
    fill(made.owner, tensor_type((), dtype_of(codes)), lambda a, b: OPS.compare(a, b, how))
    return made


def _moved(program: Program, marker: Marker, codes: ir.Value) -> ir.Value:
    """The dequantize of codes in another order; sums of blocks are of the old one."""
    parts = {k: v for k, v in marker.parts.items() if k != "sum"} | {"codes": codes}
    return rebuilt(program, marker, shape_of(codes), marker.encoding.block, parts)
