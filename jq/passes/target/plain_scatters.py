"""Scatters become those that IREE 3.13 gets right, and write to no memory but their operand's.

    scatter %x : [B, T, H, D], %i, %u : [B, 1, H, D]           // one window at a position of T
    ->
    scatter (reshape %x : [B * T, H * D]), %rows : [B, 1], (reshape %u : [B, H * D])

The leading axes, along which windows lie, become one axis of rows; a window of several rows becomes
several updates. IREE does not look whether a row exists, and XLA drops a window that is not whole.
What is known of the indices (`jq.ir.index_range`) often proves that all are; else, of windows that
are outside,

- sums, products and extremes get updates that change nothing;
- for any other update the operand gets one more row, where they go, which is cut off again.

One window alone is read, changed and written back as a slice. A scatter of several operands at a
time, which IREE has not, takes one window after the other in a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from jq.errors import UserError
from jq.ir import Program, at, dtype_of, ir, shape_of, stablehlo
from jq.ir.arrays import StableHloOps
from jq.ir.build import NAME, replace, string_attr
from jq.ir.index_range import Place, index_range
from jq.ir.program import constant_of
from jq.passes.base import Pass, PassContext
from jq.passes.target import _scatter
from jq.passes.target._scatter import Scatter

OPS = StableHloOps()
Combine = Callable[[ir.Value, ir.Value], ir.Value]


@dataclass(frozen=True)
class PlainScatters(Pass):
    name = "plain-scatters"

    def run(self, program: Program, cx: PassContext) -> bool:
        found = [op for op in program.walk() if needs_rows(op)]
        for op in found:
            with at(op):
                replace(op, _lowered(op))
        return bool(found)


def needs_rows(op: Any) -> bool:
    """Whether `op` is a scatter, but not of whole rows of a matrix that are proven to exist."""
    if op.operation.name != "stablehlo.scatter":
        return False
    d, (operands, indices, _) = _scatter.numbers(op), _scatter.parts(op)
    whole = shape_of(operands[0])
    plain = (
        len(operands) == 1
        and len(whole) == 2
        and list(d.update_window_dims) == [1]
        and list(d.scattered_dims_to_operand_dims) == list(d.inserted_window_dims) == [0]
        and not list(d.input_batching_dims)
        and len(shape_of(indices)) == 2
        and d.index_vector_dim == 1
        and shape_of(op.operands[2])[1] == whole[1]
    )
    low, high = index_range(indices, Place(1, 0)) if plain else (0, 0)
    return not plain or low < 0 or high >= whole[0] or bool(_bool_sums(op))


def _lowered(op: Any) -> list[ir.Value]:
    operands, _, updates = _scatter.parts(op)
    _check_types(op, operands)
    if 0 in shape_of(operands[0]) or 0 in shape_of(updates[0]):
        return operands
    _or_bools(op)
    s = _scatter.read(op)
    if s.count == 1:
        return _window(op, s, operands)
    if len(operands) == 1:
        return [_rows(op, s, operands[0])]
    return _one_by_one(op, s, operands)


def _check_types(op: Any, operands: list[ir.Value]) -> None:
    inside = [dtype_of(v) for v in _body(op).arguments]
    if inside != [dtype_of(v) for v in operands] * 2:
        raise UserError(
            "a scatter that computes in another type than that of its operand",
            op=string_attr(op, NAME) or op.operation.name,
            hint="convert the operand and the updates before it",
        )


# Many windows.


def _rows(op: Any, s: Scatter, operand: ir.Value) -> ir.Value:
    lead = len(s.shape)
    while lead and s.windows[lead - 1] == s.shape[lead - 1]:
        lead -= 1
    count, each, width = s.count, prod(s.windows[:lead]), prod(s.shape[lead:])
    rows = prod(s.shape[:lead])
    index = _row_numbers(s, lead)
    matrix = OPS.reshape(operand, (rows, width))
    update = OPS.reshape(s.updates[0], (count * each, width))
    inside = s.inside and _repeated(OPS.reshape(s.inside, (count,)), each)
    if inside is not None:
        neutral = _neutral(op, operand)
        if neutral is not None:
            wide = OPS.broadcast(inside, shape_of(update), [0])
            same = stablehlo.broadcast_in_dim(update.type, neutral, [])
            update = OPS.select(wide, update, same)
        else:
            beyond = OPS.broadcast(
                OPS.constant(np.array(rows, dtype_of(index))), shape_of(index), []
            )
            index = OPS.select(inside, index, beyond)
            matrix = OPS.pad(matrix, _zero(operand), [0, 0], [1, 0])
    result = _canonical(op, matrix, OPS.reshape(index, (count * each, 1)), update, inside is None)
    if shape_of(result)[0] != rows:
        result = OPS.slice(result, [0, 0], [rows, width])
    return OPS.reshape(result, s.shape)


def _row_numbers(s: Scatter, lead: int) -> ir.Value:
    """The row that each row of each window is written to, [count * rows of a window]."""
    kind = np.dtype(np.int32 if prod(s.shape) < np.iinfo(np.int32).max else np.int64)
    within = s.windows[:lead]
    total = OPS.broadcast(OPS.constant(np.zeros((), kind)), (*s.places, *within), [])
    rank = len(s.places)
    for axis in range(lead):
        stride = prod(s.shape[axis + 1 : lead])
        parts = []
        if axis in s.begins:
            parts.append((s.begins[axis], list(range(rank))))
        if within[axis] > 1:
            parts.append((_scatter.iota((within[axis],), 0, kind), [rank + axis]))
        for part, dims in parts:
            by = OPS.broadcast(OPS.constant(np.array(stride, kind)), shape_of(part), [])
            step = OPS.broadcast(OPS.mul(part, by), shape_of(total), dims)
            total = OPS.add(total, step)
    return OPS.reshape(total, (prod(shape_of(total)),))


def _repeated(x: ir.Value, times: int) -> ir.Value:
    wide = OPS.broadcast(x, (*shape_of(x), times), [0])
    return OPS.reshape(wide, (prod(shape_of(wide)),))


def _canonical(op: Any, x: ir.Value, i: ir.Value, u: ir.Value, proven: bool) -> ir.Value:
    """The same scatter, of rows."""
    dims = stablehlo.ScatterDimensionNumbers.get(
        update_window_dims=[1],
        inserted_window_dims=[0],
        input_batching_dims=[],
        scatter_indices_batching_dims=[],
        scattered_dims_to_operand_dims=[0],
        index_vector_dim=1,
    )
    said = op.operation.attributes
    # Rows that take the place of those outside may well occur twice.
    unique = proven and "unique_indices" in said and ir.BoolAttr(said["unique_indices"]).value
    made = ir.Operation.create(
        "stablehlo.scatter",
        results=[x.type],
        operands=[x, i, u],
        attributes={
            "scatter_dimension_numbers": dims,
            "indices_are_sorted": ir.BoolAttr.get(False),
            "unique_indices": ir.BoolAttr.get(unique),
        },
        regions=1,
    )
    _take_body(op, made)
    return made.result


# One window.


def _window(op: Any, s: Scatter, operands: list[ir.Value]) -> list[ir.Value]:
    begins = {axis: OPS.reshape(v, ()) for axis, v in s.begins.items()}
    inside = s.inside and OPS.reshape(s.inside, ())
    updates = [OPS.reshape(u, s.windows) for u in s.updates]
    return _written(op, s, operands, updates, begins, inside)


def _written(
    op: Any,
    s: Scatter,
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
    inside: ir.Value | None, s: Scatter, new: list[ir.Value], old: list[ir.Value]
) -> list[ir.Value]:
    if inside is None:
        return new
    wide = OPS.broadcast(inside, s.windows, [])
    return [OPS.select(wide, a, b) for a, b in zip(new, old, strict=True)]


def _combined(op: Any, old: list[ir.Value], updates: list[ir.Value]) -> list[ir.Value]:
    """The scatter's function of scalars, for whole windows: one map for each result."""
    results = list(_last(_body(op)).operands)
    arguments = list(_body(op).arguments)
    made = []
    for k, (result, like) in enumerate(zip(results, old, strict=True)):
        if result in arguments:
            made.append([*old, *updates][arguments.index(result)])
            continue
        mapped = ir.Operation.create(
            "stablehlo.map",
            results=[like.type],
            operands=[*old, *updates],
            attributes={"dimensions": ir.DenseI64ArrayAttr.get(list(range(len(shape_of(like)))))},
            regions=1,
        )
        _take_body(op, mapped)
        end = _last(mapped.regions[0].blocks[0])
        with at(end):
            ir.Operation.create("stablehlo.return", operands=[end.operands[k]])
        end.erase()
        made.append(mapped.result)
    return made


# Several operands.


def _one_by_one(op: Any, s: Scatter, operands: list[ir.Value]) -> list[ir.Value]:
    count, n = s.count, len(operands)
    begins = {axis: OPS.reshape(v, (count,)) for axis, v in s.begins.items()}
    inside = s.inside and OPS.reshape(s.inside, (count,))
    updates = [OPS.reshape(u, (count, *s.windows)) for u in s.updates]
    zero = OPS.constant(np.zeros((), np.int32))
    carried = [zero, *operands]
    loop = ir.Operation.create(
        "stablehlo.while", results=[v.type for v in carried], operands=carried, regions=2
    )
    kinds = [v.type for v in carried]
    cond, body = (region.blocks.append(*kinds) for region in loop.regions)
    with ir.InsertionPoint(cond):
        more = OPS.compare(cond.arguments[0], OPS.constant(np.array(count, np.int32)), "LT")
        ir.Operation.create("stablehlo.return", operands=[more])
    with ir.InsertionPoint(body):
        step, *current = body.arguments
        picked = {axis: _at(v, step) for axis, v in begins.items()}
        allowed = None if inside is None else _at(inside, step)
        window = [_at(u, step) for u in updates]
        new = _written(op, s, list(current), window, picked, allowed)
        following = OPS.add(step, OPS.constant(np.ones((), np.int32)))
        ir.Operation.create("stablehlo.return", operands=[following, *new])
    return list(loop.results)[1 : n + 1]


def _at(x: ir.Value, step: ir.Value) -> ir.Value:
    """`x[step]`"""
    rest = shape_of(x)[1:]
    zero = OPS.constant(np.zeros((), np.int32))
    cut = stablehlo.dynamic_slice(x, [step, *[zero] * len(rest)], [1, *rest])
    return OPS.reshape(cut, rest)


# The function of a scatter.


def _body(op: Any) -> ir.Block:
    return op.operation.regions[0].blocks[0]


def _last(block: ir.Block) -> Any:
    return block.operations[len(block.operations) - 1].operation


def _take_body(op: Any, to: ir.Operation) -> None:
    """Gives `to` a copy of the scatter's function."""
    copy = op.operation.clone()
    copy.regions[0].blocks[0].append_to(to.regions[0])
    for result, value in zip(copy.results, copy.operands, strict=False):
        result.replace_all_uses_with(value)
    copy.erase()


def _binary(op: Any) -> str | None:
    """The one op of two arguments that the function is."""
    ops, block = list(_body(op).operations), _body(op)
    if len(ops) != 2 or len(block.arguments) != 2:
        return None
    made = ops[0].operation
    both = len(made.operands) == 2 and set(made.operands) == set(block.arguments)
    whole = both and list(ops[1].operation.operands) == list(made.results)
    return made.name.removeprefix("stablehlo.") if whole else None


def _neutral(op: Any, operand: ir.Value) -> ir.Value | None:
    """The scalar that the function leaves its other argument unchanged by, where there is one."""
    kind, name = dtype_of(operand), _binary(op)
    table: dict[str, float]
    if kind.kind == "c" or name is None:  # a product by 1 + 0i changes infinities
        return None
    if kind.kind in "biu":
        low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        ones = high if kind.kind in "bu" else -1
        table = {"add": 0, "multiply": 1, "maximum": low, "minimum": high, "or": 0, "and": ones}
    elif kind in (np.float16, np.float32, np.float64) or kind.name == "bfloat16":
        table = {"add": -0.0, "multiply": 1, "maximum": -np.inf, "minimum": np.inf}
    else:
        return None
    return constant_of(np.array(table[name], kind)) if name in table else None


def _zero(operand: ir.Value) -> ir.Value:
    kind = dtype_of(operand)
    if kind.kind != "c":
        return constant_of(np.zeros((), kind))
    part = constant_of(np.zeros((), np.float64 if kind == np.complex128 else np.float32))
    return stablehlo.complex(part, part)


def _bool_sums(op: Any) -> list[Any]:
    """Sums of bools, which IREE takes modulo 2."""
    inner = [o.operation for o in _body(op).operations]
    return [o for o in inner if o.name == "stablehlo.add" and dtype_of(o.results[0]) == np.bool_]


def _or_bools(op: Any) -> None:
    for found in _bool_sums(op):
        with at(found):
            either = OPS.bit_or(*found.operands)
        found.results[0].replace_all_uses_with(either)
        found.erase()
