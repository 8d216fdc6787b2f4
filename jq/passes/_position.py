"""Positions of slices and updates."""

import numpy as np

from jq.ir import OPS, Op, Program, dtype_of, evaluate, ir, shape_of

SLICE, UPDATE = "stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"


def along(program: Program, op: Op) -> int | None:
    """The only axis whose position is found at run time, if the part is whole along all others."""
    slices = op.operation.name == SLICE
    part = op.results[0] if slices else op.operands[1]
    starts = list(op.operands)[1 if slices else 2 :]
    found = [a for a, start in enumerate(starts) if evaluate(program, start) is None]
    pairs = zip(shape_of(op.operands[0]), shape_of(part), strict=True)
    cut = [a for a, (size, own) in enumerate(pairs) if size != own]
    fits = len(found) == 1 and not set(cut) - set(found) and 0 not in shape_of(part)
    return found[0] if fits else None


def held(position: ir.Value, most: int) -> ir.Value:
    """i32, held to 0 .. most."""
    dtype = dtype_of(position)
    ends = 0, min(most, np.iinfo(dtype).max)
    low, high = (OPS.constant(np.asarray(n, dtype)) for n in ends)
    return OPS.convert(OPS.minimum(OPS.maximum(position, low), high), np.int32)
