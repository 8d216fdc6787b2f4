"""The ops of a unit as data: what `replay.py`, or the generator of a kernel, needs of each."""

from typing import Any

import numpy as np

from jq.device.replay_ops import COMBINE, OPS
from jq.ir import Op, Program, dtype_of, ir, kind_of, shape_of
from jq.ir.build import attributes_of, integers
from jq.ir.ops.geometry import of_window
from jq.ir.ops.lookup import contraction, multiplies
from jq.ir.ops.selection import combines

_ARRAYS = "broadcast_dimensions permutation dimensions start_indices limit_indices strides"
_ARRAYS += " edge_padding_low edge_padding_high interior_padding window_dimensions"


def steps_of(made: Program) -> dict[str, Any]:
    """Arguments, steps and result of a unit's program.

    Raises:
        ValueError: with the reason why a unit cannot be replayed bit for bit."""
    names = {v: f"a{i}" for i, v in enumerate(made.body.arguments)}
    arguments, result = list(names.values()), ""
    steps: list[dict[str, Any]] = []
    for op in made.body.operations:
        if op.operation.name == "func.return":
            result = names[op.operation.operands[0]]
            continue
        read = [names[v] for v in op.operation.operands]
        out = f"v{len(steps)}"
        names[op.operation.results[0]] = out
        steps.append(step_of(op) | {"in": read, "out": out})
    _check_floats(made)
    return {"arguments": arguments, "steps": steps, "result": result}


def step_of(op: Op) -> dict[str, Any]:
    """The fields of an op that `replay_ops.OPS` needs, without its operands.

    Raises:
        ValueError: with the reason why the op cannot be replayed."""
    value, name = op.operation.results[0], kind_of(op).removeprefix("stablehlo.")
    if name not in OPS:
        raise ValueError(f"{name} does not give the same bits everywhere")
    kind = {"op": name, "type": dtype_of(value).name, "shape": list(shape_of(value))}
    return kind | _details(op)


def _check_floats(made: Program) -> None:
    """A float product that is added may be rounded once or twice."""
    results = [v for op in made.body.operations for v in op.operation.results]
    makers = [v.owner for v in results if dtype_of(v).kind in "fV"]
    floats = {kind_of(op) for op in makers}
    sums = {"stablehlo.reduce", "stablehlo.reduce_window"}
    if floats & sums or any(map(multiplies, makers)):
        raise ValueError("sums of floats depend on their order")
    if "stablehlo.multiply" in floats and floats & {"stablehlo.add", "stablehlo.subtract"}:
        raise ValueError("a product of floats and a sum may be rounded once or twice")


def _details(op: Op) -> dict[str, Any]:
    name, found = kind_of(op).removeprefix("stablehlo."), attributes_of(op)
    details: dict[str, Any] = {k: list(integers(op, k)) for k in _ARRAYS.split() if k in found}
    if name == "constant":
        array = np.array(found["value"])
        details["value"] = (array if array.size > 1 else array.reshape(())).tolist()
    elif name == "concatenate":
        details["dimension"] = ir.IntegerAttr(found["dimension"]).value
    elif name == "compare":
        details["direction"] = str(found["comparison_direction"]).split()[-1].rstrip(">")
    elif name == "gather" and len(shape_of(op.operation.operands[0])) != 1:
        raise ValueError("gather of anything but a table is not replayed")
    elif name in ("reduce", "reduce_window"):
        details |= _reduction(op)
    elif rule := contraction(name):
        details |= rule.details(op)
    return details


def _reduction(op: Op) -> dict[str, Any]:
    combine, g = combines(op), of_window(op)
    if combine not in COMBINE:
        raise ValueError(f"a reduction by {combine or 'several ops'} is not replayed")
    if kind_of(op) == "stablehlo.reduce":
        return {"combine": combine}
    if max(g.interior, default=1) > 1:
        raise ValueError("a window over a spread tensor is not replayed")
    return {
        "combine": combine,
        "window_strides": list(g.stride),
        "window_dilations": list(g.dilation),
        "padding": list(map(list, g.padding)),
    }
