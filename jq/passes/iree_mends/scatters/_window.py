"""One window as a slice that is read, changed and written back; of several operands, in a loop."""

import numpy as np

from jq.ir import Op, at, dtype_of, ir, shape_of, stablehlo
from jq.ir.arrays import StableHloOps
from jq.passes.iree_mends.scatters._function import body_of, last_of, take_body
from jq.passes.iree_mends.scatters._scatter import Scatter

OPS = StableHloOps()


def write_window(op: Op, s: Scatter, operands: list[ir.Value]) -> list[ir.Value]:
    begins = {axis: OPS.reshape(v, ()) for axis, v in s.begins.items()}
    inside = s.inside and OPS.reshape(s.inside, ())
    updates = [OPS.reshape(u, s.windows) for u in s.updates]
    return _written(op, s, operands, updates, begins, inside)


def _written(
    op: Op,
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


def _combined(op: Op, old: list[ir.Value], updates: list[ir.Value]) -> list[ir.Value]:
    """The scatter's function of scalars, for whole windows: one map for each result."""
    results = list(last_of(body_of(op)).operands)
    arguments = list(body_of(op).arguments)
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
        take_body(op, mapped)
        end = last_of(mapped.regions[0].blocks[0])
        with at(end):
            ir.Operation.create("stablehlo.return", operands=[end.operands[k]])
        end.erase()
        made.append(mapped.result)
    return made


# Several operands.


def one_by_one(op: Op, s: Scatter, operands: list[ir.Value]) -> list[ir.Value]:
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
