"""Stored weights that a model puts one after the other become one stored weight.

    concatenate (dequantize %a.blocks), (dequantize %b.blocks)  ->  dequantize %a+b.blocks

Also after transposes, conversions and new leading axes (a stack) that are the same for all.
Where the encodings are alike and no block is cut (`jq.formats.cuts`). A weight that is read by
itself, too, is stored for that besides.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from jq.formats import Encoding
from jq.ir import Op, Program, at, dtype_of, ir, shape_of
from jq.ir.arrays import OPS
from jq.ir.build import integer, integers, replace
from jq.ir.markers import DEQUANTIZE, match
from jq.ir.ops.rules.concatenate import join_parts
from jq.ir.stored import drop_unused_encodings, store
from jq.ir.values import maker
from jq.passes.qdq.hoist_quantize import erase_dead

Order = tuple[int, ...]


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

    `moves`: the transposes (an order of axes) and conversions after it, the first of them first.
    """

    tensor: str
    encoding: Encoding
    arrays: dict[str, np.ndarray]
    dtype: Any
    moves: tuple[Order | np.dtype[Any], ...]


def _join(program: Program, op: Op) -> bool:
    found = [_source(program, v) for v in op.operands]
    sources = [s for s in found if s is not None]
    if len(sources) < max(len(found), 2):
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
    value = store(program, _name([s.tensor for s in sources]), *made, first.dtype)
    with at(op):
        for move in first.moves:
            if isinstance(move, tuple):
                value = OPS.transpose(value, move)
            else:
                value = OPS.convert(value, move)
    replace(op, [value])
    return True


def _name(names: list[str]) -> str:
    """`q+k+v`; of more than four the first and how many follow, `blk/0/attn_q+31`."""
    return "+".join(names) if len(names) <= 4 else f"{names[0]}+{len(names) - 1}"


def _source(program: Program, value: ir.Value) -> _Source | None:
    """None for a value that is computed."""
    moves: list[Order | np.dtype[Any]] = []
    ones = 0  # leading axes
    while (op := maker(value)) is not None:
        if marker := match(value, DEQUANTIZE):
            names = {k: program.weight_name(v) for k, v in marker.parts.items()}
            arrays = {k: program.weights[n] for k, n in names.items() if n is not None}
            if len(arrays) < len(names):
                return None
            lead, enc = (1,) * ones, marker.encoding
            arrays = {k: a.reshape(lead + a.shape) for k, a in arrays.items()}
            enc = enc.with_shape(lead + enc.shape, lead + enc.block)
            return _Source(marker.tensor, enc, arrays, dtype_of(value), tuple(moves))
        if op.operation.name == "stablehlo.transpose":
            order = integers(op, "permutation")
            moves.insert(0, (*range(ones), *(ones + a for a in order)))
        elif op.operation.name == "stablehlo.convert":
            moves.insert(0, dtype_of(value))
        elif (count := _leading_ones(op)) is not None:
            ones += count
        else:
            return None
        value = op.operands[0]
    return None


def _leading_ones(op: Op) -> int | None:
    """Number of leading ones that an op adds to a shape, if it does nothing else."""
    if op.operation.name not in ("stablehlo.reshape", "stablehlo.broadcast_in_dim"):
        return None
    before, after = shape_of(op.operands[0]), shape_of(op.results[0])
    count = len(after) - len(before)
    same = count >= 0 and after == (1,) * count + before
    kept = integers(op, "broadcast_dimensions") or tuple(range(count, len(after)))
    return count if same and kept == tuple(range(count, len(after))) else None
