"""Stored weights that a model puts one after the other become one stored weight.

    concatenate (dequantize %a.blocks), (dequantize %b.blocks)  ->  dequantize %a+b.blocks

Also after transposes, conversions and new leading axes (a stack) that are the same for all, and of
slices of stored weights, which are stored besides where that is at most as much again. Where the
encodings are alike and no block is cut (`jq.formats.blocks`). A weight that is read by itself, too,
is stored for that besides."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.formats import Encoding
from jq.formats.blocks import cut_axes, cut_range
from jq.ir import OPS, Op, Program, at, dtype_of, ir, maker, shape_of
from jq.ir.build import integer, integers, replace
from jq.ir.encodings import drop_unused_encodings, store
from jq.ir.markers import DEQUANTIZE, match
from jq.ir.ops.rules.concatenate import join_parts
from jq.passes.rewrite import erase_dead

Order = tuple[int, ...]
Cut = tuple[tuple[int, int, int], ...]  # start, end and stride of each axis
GROWS = 2  # times the elements of its weights that a joined one may have


def join_stored(program: Program) -> bool:
    """True when there were any."""
    changed = False
    for op in list(program.body.operations):
        if op.operation.name == "stablehlo.concatenate":
            changed |= _join(program, op)
    if changed:
        program.drop_dead()
        erase_dead(program)
        program.drop_unused_weights()
        drop_unused_encodings(program)
    return changed


@dataclass(frozen=True)
class _Source:
    """A stored weight, with leading axes of size 1 as a stack gives it.

    `moves`: the transposes (an order of axes) and conversions after it, the first of them first."""

    tensor: str
    encoding: Encoding
    arrays: dict[str, np.ndarray]
    dtype: Any
    moves: tuple[Order | np.dtype[Any], ...]
    whole: int


def _join(program: Program, op: Op) -> bool:
    found = [_source(program, v) for v in op.operands]
    sources = [s for s in found if s is not None]
    if len(sources) < max(len(found), 2):
        return False
    whole = {s.tensor: s.whole for s in sources}
    if math.prod(shape_of(op.results[0])) > GROWS * sum(whole.values()):
        return False
    first, axis = sources[0], integer(op, "dimension")
    if any((s.moves, s.dtype) != (first.moves, first.dtype) for s in sources):
        return False
    for move in reversed(first.moves):
        axis = move[axis] if isinstance(move, tuple) else axis
    encodings = [s.encoding for s in sources]
    made = join_parts(encodings, [s.arrays for s in sources], axis, np.concatenate)
    if made is None:
        return False
    names = [s.tensor for s in sources]
    name = "+".join(names) if len(names) <= 4 else f"{names[0]}+{len(names) - 1}"
    value = store(program, name, *made, first.dtype)
    with at(op):
        for move in first.moves:
            if isinstance(move, tuple):
                value = OPS.transpose(value, move)
            else:
                value = OPS.convert(value, move)
    replace(op, [value])
    return True


def _source(program: Program, value: ir.Value) -> _Source | None:
    """None for a value that is computed."""
    moves: list[Order | np.dtype[Any]] = []
    cuts: list[Cut] = []  # on the axes of the value
    ones = 0  # leading axes
    while (op := maker(value)) is not None:
        if marker := match(value, DEQUANTIZE):
            names = {k: program.weight_name(v) for k, v in marker.parts.items()}
            arrays = {k: program.weights[n] for k, n in names.items() if n is not None}
            if len(arrays) < len(names):
                return None
            lead, enc, whole = (1,) * ones, marker.encoding, math.prod(marker.encoding.shape)
            for cut in reversed(cuts):
                if (kept := _cut(enc, arrays, cut)) is None:
                    return None
                enc, arrays = kept
            arrays = {k: a.reshape(lead + a.shape) for k, a in arrays.items()}
            enc = enc.with_shape(lead + enc.shape, lead + enc.block)
            return _Source(marker.tensor, enc, arrays, dtype_of(value), tuple(moves), whole)
        if op.operation.name == "stablehlo.transpose":
            order = integers(op, "permutation")
            _put_first(moves, (*range(ones), *(ones + a for a in order)))
            cuts = [tuple([c[order.index(a)] for a in range(len(order))]) for c in cuts]
        elif op.operation.name == "stablehlo.convert":
            moves.insert(0, dtype_of(value))
        elif (count := _leading_ones(op)) is not None:
            ones += count
            cuts = [c[count:] for c in cuts]
        elif op.operation.name == "stablehlo.slice":
            bounds = (integers(op, k) for k in ("start_indices", "limit_indices", "strides"))
            cuts.append(tuple(zip(*bounds, strict=True)))
        else:
            return None
        value = op.operands[0]
    return None


def _put_first(moves: list[Order | np.dtype[Any]], order: Order) -> None:
    """Adds a transpose before the moves; with one after it, it is one or none."""
    if moves and isinstance(then := moves[0], tuple):
        moves.pop(0)
        order = tuple(order[a] for a in then)
    if order != tuple(range(len(order))):
        moves.insert(0, order)


def _cut(
    enc: Encoding, arrays: dict[str, np.ndarray], bounds: Cut
) -> tuple[Encoding, dict[str, np.ndarray]] | None:
    """A slice of a stored tensor; None where it cuts a block, or a byte of codes."""
    for axis, (low, high, stride) in enumerate(bounds):
        if (low, high, stride) == (0, enc.shape[axis], 1):
            continue
        ranges = cut_range(enc, axis, low, high)
        if stride > 1:
            axes = cut_axes(enc, axis, 1)  # every index by itself
            every = {k: (a, low, high) for k, a in (axes or {}).items() if a is not None}
            ranges = every if axes else None
        if ranges is None:
            return None
        for key, (at_axis, start, stop) in ranges.items():
            part = (*[slice(None)] * at_axis, slice(start, stop, stride))
            arrays = arrays | {key: arrays[key][part]}
        size = -(-(high - low) // stride)
        enc = enc.with_shape((*enc.shape[:axis], size, *enc.shape[axis + 1 :]), enc.block)
    return enc, arrays


def _leading_ones(op: Op) -> int | None:
    """Number of leading ones that an op adds to a shape, if it does nothing else."""
    if op.operation.name not in ("stablehlo.reshape", "stablehlo.broadcast_in_dim"):
        return None
    before, after = shape_of(op.operands[0]), shape_of(op.results[0])
    count = len(after) - len(before)
    same = count >= 0 and after == (1,) * count + before
    kept = integers(op, "broadcast_dimensions") or tuple(range(count, len(after)))
    return count if same and kept == tuple(range(count, len(after))) else None
