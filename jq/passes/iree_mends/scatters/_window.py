"""One window as a slice that is read, changed and written back; of several operands, in a loop."""

from functools import partial
from math import prod

import numpy as np

from jq.formats.arrays import clip
from jq.formats.blocks import full
from jq.ir import OPS, Op, at, create, dtype_of, i64_array, ir, last_of, shape_of, stablehlo
from jq.ir.index_range import Element, index_range
from jq.passes.iree_mends.scatters import _scatter as scatters


def write_window(op: Op, s: scatters.Scatter, operands: list[ir.Value]) -> list[ir.Value]:
    begins = {axis: OPS.reshape(v, ()) for axis, v in s.begins.items()}
    inside = s.inside and OPS.reshape(s.inside, ())
    updates = [OPS.reshape(u, s.windows) for u in s.updates]
    return _written(op, s, operands, updates, begins, inside)


def _written(
    op: Op,
    s: scatters.Scatter,
    operands: list[ir.Value],
    updates: list[ir.Value],
    begins: dict[int, ir.Value],
    inside: ir.Value | None,
) -> list[ir.Value]:
    """The operands with one window changed, where it is inside."""
    if s.windows == s.shape:
        return _where(inside, s, _combined(op, operands, updates), operands)
    kind = next((dtype_of(v) for v in begins.values()), np.dtype(np.int32))
    start = [begins.get(a) or OPS.constant(np.zeros((), kind)) for a in range(len(s.shape))]
    old = [stablehlo.dynamic_slice(x, start, list(s.windows)) for x in operands]
    new = _where(inside, s, _combined(op, old, updates), old)
    return [stablehlo.dynamic_update_slice(x, v, start) for x, v in zip(operands, new, strict=True)]


def _where(
    inside: ir.Value | None, s: scatters.Scatter, new: list[ir.Value], old: list[ir.Value]
) -> list[ir.Value]:
    if inside is None:
        return new
    wide = OPS.broadcast(inside, s.windows, [])
    return list(map(partial(OPS.select, wide), new, old))


def _combined(op: Op, old: list[ir.Value], updates: list[ir.Value]) -> list[ir.Value]:
    """The scatter's function of scalars, for whole windows: one map for each result."""
    results = list(last_of(scatters.body_of(op)).operands)
    arguments = list(scatters.body_of(op).arguments)
    made = []
    for k, (result, like) in enumerate(zip(results, old, strict=True)):
        if result in arguments:
            made.append([*old, *updates][arguments.index(result)])
            continue
        axes = i64_array(range(len(shape_of(like))))
        mapped = create("stablehlo.map", like.type, *old, *updates, regions=1, dimensions=axes)
        scatters.take_body(op, mapped.owner)
        end = last_of(scatters.body_of(mapped.owner))
        with at(end):
            stablehlo.return_([end.operands[k]])
        end.erase()
        made.append(mapped)
    return made


# Several operands.


def one_by_one(op: Op, s: scatters.Scatter, operands: list[ir.Value]) -> list[ir.Value]:
    count, n = s.count, len(operands)
    begins = {axis: OPS.reshape(v, (count,)) for axis, v in s.begins.items()}
    inside = s.inside and OPS.reshape(s.inside, (count,))
    updates = [OPS.reshape(u, (count, *s.windows)) for u in s.updates]
    carried = [OPS.constant(np.zeros((), np.int32)), *operands]
    loop = ir.Operation.create(
        "stablehlo.while", results=[v.type for v in carried], operands=carried, regions=2
    )
    kinds = [v.type for v in carried]
    cond, body = (region.blocks.append(*kinds) for region in loop.regions)
    with ir.InsertionPoint(cond):
        more = OPS.compare(cond.arguments[0], OPS.constant(np.array(count, np.int32)), "LT")
        stablehlo.return_([more])
    with ir.InsertionPoint(body):
        step, *current = body.arguments
        picked = {axis: _at(v, step) for axis, v in begins.items()}
        allowed = None if inside is None else _at(inside, step)
        window = [_at(u, step) for u in updates]
        new = _written(op, s, list(current), window, picked, allowed)
        following = OPS.add(step, OPS.constant(np.ones((), np.int32)))
        stablehlo.return_([following, *new])
    return list(loop.results)[1 : n + 1]


def _at(x: ir.Value, step: ir.Value) -> ir.Value:
    """`x[step]`"""
    rest = shape_of(x)[1:]
    zero = OPS.constant(np.zeros((), np.int32))
    cut = stablehlo.dynamic_slice(x, [step, *[zero] * len(rest)], [1, *rest])
    return OPS.reshape(cut, rest)


def scatter_rows(op: Op, s: scatters.Scatter, operand: ir.Value) -> ir.Value:
    lead = len(s.shape)
    while lead and s.windows[lead - 1] == s.shape[lead - 1]:
        lead -= 1
    count, each, width = s.count, prod(s.windows[:lead]), prod(s.shape[lead:])
    rows = prod(s.shape[:lead])
    index = _row_numbers(s, lead)
    matrix = OPS.reshape(operand, (rows, width))
    update = OPS.reshape(s.updates[0], (count * each, width))
    inside = s.inside and OPS.broadcast(OPS.reshape(s.inside, (count,)), (count, each), [0])
    inside = inside and OPS.reshape(inside, (count * each,))
    if inside is not None:
        same = scatters.neutral(op, operand)
        if same is not None:
            wide = OPS.broadcast(inside, shape_of(update), [0])
            unchanged = stablehlo.broadcast_in_dim(update.type, same, [])
            update = OPS.select(wide, update, unchanged)
        else:
            index = OPS.select(inside, index, rows)
            matrix = OPS.pad(matrix, scatters.zero_of(operand), [0, 0], [1, 0])
    index = _within(OPS.reshape(index, (count * each, 1)), shape_of(matrix)[0] - 1)
    result = _canonical(op, matrix, index, update, inside is None)
    if shape_of(result)[0] != rows:
        result = OPS.slice(result, [0, 0], [rows, width])
    return OPS.reshape(result, s.shape)


def _row_numbers(s: scatters.Scatter, lead: int) -> ir.Value:
    """The row that each row of each window is written to, [count * rows of a window]."""
    kind = np.dtype(np.int32 if prod(s.shape) < np.iinfo(np.int32).max else np.int64)
    within = s.windows[:lead]
    shape = (*s.places, *within)
    total = full(OPS, 0, shape, kind)
    rank = len(s.places)
    for axis in range(lead):
        stride = prod(s.shape[axis + 1 : lead])
        parts = []
        if axis in s.begins:
            parts.append((s.begins[axis], list(range(rank))))
        if within[axis] > 1:
            parts.append((scatters.iota((within[axis],), 0, kind), [rank + axis]))
        for part, dims in parts:
            total = OPS.add(total, OPS.broadcast(OPS.mul(part, stride), shape, dims))
    return OPS.reshape(total, (prod(shape),))


def _within(index: ir.Value, last: int) -> ir.Value:
    """Clamped, where the ops that add it up do not prove that it is inside."""
    low, high = index_range(index, Element(1, 0))
    return index if low >= 0 and high <= last else clip(OPS, index, 0, last)


def _canonical(op: Op, x: ir.Value, i: ir.Value, u: ir.Value, proven: bool) -> ir.Value:
    """The same scatter, of rows."""
    said = op.attributes
    # Rows that take the place of those outside may well occur twice.
    unique = proven and "unique_indices" in said and ir.BoolAttr(said["unique_indices"]).value
    says = {"indices_are_sorted": ir.BoolAttr.get(False), "unique_indices": ir.BoolAttr.get(unique)}
    return scatters.scatter(op, x, i, u, [1], **says)
